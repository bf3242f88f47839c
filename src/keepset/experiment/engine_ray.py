"""Workers as tasks of Ray, which places them on the machines and GPUs of its cluster."""

from __future__ import annotations

import warnings
from typing import Any

from ..cluster import connect, import_ray
from .work import work

RETRIES = 3  # of a task whose process or machine is lost


class RayCrew:
    """size: None for all GPUs of the cluster, or half its cores where the runs are on CPUs."""

    def __init__(self, text: str, size: int | None, cuda: bool, address: str) -> None:
        ray = import_ray("the engine ray")
        self.ray: Any = ray
        self.text, self.started, self.tasks = text, 0, list[Any]()
        self.ours = not ray.is_initialized()
        if self.ours:
            connect(ray, address)
        try:
            self.size = size or self._places(cuda)
        except ValueError:
            self.stop()
            raise
        needs: dict[str, Any] = {"num_gpus": 1} if cuda else {"num_cpus": 1}
        self.task = self.ray.remote(max_retries=RETRIES, **needs)(work)

    def _places(self, cuda: bool) -> int:
        found = self.ray.cluster_resources()
        if cuda and not found.get("GPU"):
            raise ValueError("device is cuda, but the Ray cluster has no GPU; set it to cpu with --set device=cpu")
        if not cuda and found.get("GPU"):
            warnings.warn(
                "the Ray cluster has GPUs, but device is cpu; say --set device=cuda to use them", stacklevel=2
            )
        return int(found["GPU"]) if cuda else max(1, int(found.get("CPU", 1)) // 2)

    def start(self) -> None:
        place, self.started = self.started, self.started + 1
        self.tasks.append(self.task.remote(self.text, place, self.size))

    def alive(self) -> int:
        if not self.tasks:
            return 0
        _, pending = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0)
        return len(pending)

    def stop(self) -> None:
        for task in self.tasks:
            self.ray.cancel(task, force=True)
        self.tasks = []
        if self.ours:
            self.ray.shutdown()
