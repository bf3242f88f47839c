"""For all tests: one thread, examples that are the same in every run, a cache of views of their own, and a Ray."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the programs that tests start: two tests run at a time
# some virtual machines announce AMX and end a process that multiplies bfloat16 with it (Illegal instruction)
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
settings.register_profile("keepset", deadline=None, derandomize=True, database=None)
settings.load_profile("keepset")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The digits' views are made once for all tests, and never in the user's own cache."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # the processes of one session share their parent's folder
        shared = shared.parent
    before = os.environ.get("KEEPSET_CACHE")
    os.environ["KEEPSET_CACHE"] = str(shared / "views")
    yield
    os.environ.pop("KEEPSET_CACHE")
    if before is not None:
        os.environ["KEEPSET_CACHE"] = before


@pytest.fixture(scope="session")
def importable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules that tests write and the processes of their Ray import."""
    return tmp_path_factory.mktemp("importable")


@pytest.fixture(scope="session")
def cluster(importable: Path) -> Iterator[Any]:
    """A Ray of two workers on this machine; they take seconds to start, so all tests have the same."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", str(importable), prepend=os.pathsep)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        yield ray
        ray.shutdown()
