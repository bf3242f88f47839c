"""Views in, indices out."""

from .api import SELECTORS, coverage, select, select_per_class
from .planning import Plan, plan
from .result import Selection

__all__ = ["SELECTORS", "Plan", "Selection", "coverage", "plan", "select", "select_per_class"]
