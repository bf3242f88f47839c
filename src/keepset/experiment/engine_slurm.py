"""Workers as jobs of Slurm, by submitit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .work import work

COMMON = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
FOLDER = ".slurm"


class SlurmCrew:
    """Jobs go on when the grid that sent them is broken off, and end by themselves once nothing is left to claim.

    parameters: submitit's, those of Slurm with or without its prefix (`partition`); `cluster = "local"` tries it
    all out on this machine.
    """

    def __init__(self, text: str, out: Path, size: int, cuda: bool, parameters: Mapping[str, Any]) -> None:
        try:
            import submitit
        except ImportError:
            raise ValueError("the engine slurm needs submitit; pip install keepset[slurm]") from None
        self.text, self.size, self.jobs = text, size, list[Any]()
        given = {"name": "keepset", **({"gpus_per_node": 1} if cuda else {}), **parameters}
        cluster = given.pop("cluster", "slurm")
        try:
            self.executor = submitit.AutoExecutor(folder=(out / FOLDER).absolute(), cluster=cluster)
            self.executor.update_parameters(**{_prefixed(key): value for key, value in given.items()})
        except Exception as error:  # submitit asserts, among others
            raise ValueError(f"cannot send jobs to {cluster}: {error}") from None

    def start(self) -> None:
        self.jobs.append(self.executor.submit(work, self.text, len(self.jobs), self.size))

    def alive(self) -> int:
        return sum(not job.done() for job in self.jobs)

    def stop(self) -> None:
        """Nothing: they may go on without us."""


def _prefixed(key: str) -> str:
    return key if key in COMMON or key.startswith("slurm_") else f"slurm_{key}"
