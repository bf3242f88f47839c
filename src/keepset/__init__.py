"""keepset chooses what a learner should remember: the few points that cover several views at once."""

from importlib.metadata import PackageNotFoundError, version

from .buffer import Buffer
from .embed import embed
from .selection import Plan, Selection, coverage, plan, select, select_per_class

try:
    __version__ = version("keepset")
except PackageNotFoundError:  # run from source
    __version__ = "0.0.0"

__all__ = ["Buffer", "Plan", "Selection", "coverage", "embed", "plan", "select", "select_per_class"]
