"""keepset chooses what a learner should remember: the few points that cover several views at once."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .buffer import Buffer
    from .embedding import embed
    from .selection import Plan, Selection, coverage, plan, select, select_per_class

try:
    __version__ = version("keepset")
except PackageNotFoundError:  # run from source
    __version__ = "0.0.0"

__all__ = ["Buffer", "Plan", "Selection", "coverage", "embed", "plan", "select", "select_per_class"]
ROOMS = {"Buffer": "buffer", "embed": "embedding"}  # the others are of `selection`


def __getattr__(name: str) -> Any:
    """A public name, found when it is first asked for: loading torch takes seconds, and `keepset --help` needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{ROOMS.get(name, 'selection')}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
