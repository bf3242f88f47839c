"""Settings for all tests: one thread, examples that are the same in every run, and a cache of views of their own."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the programs that tests start: two tests run at a time
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
