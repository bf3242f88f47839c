"""Views in, indices out."""

from .api import SELECTORS, coverage, select, select_per_class
from .result import Selection

__all__ = ["SELECTORS", "Selection", "coverage", "select", "select_per_class"]
