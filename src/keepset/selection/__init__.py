"""Views in, indices out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .table import SELECTORS

if TYPE_CHECKING:
    from .api import coverage, select, select_per_class
    from .planning import Plan, plan
    from .result import Selection

__all__ = ["SELECTORS", "Plan", "Selection", "coverage", "plan", "select", "select_per_class"]
FILES = {"Plan": "planning", "Selection": "result", "plan": "planning"}  # the others are in `api`


def __getattr__(name: str) -> Any:
    """What needs torch is loaded when it is first asked for: tables of results need the table of selectors alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{FILES.get(name, 'api')}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
