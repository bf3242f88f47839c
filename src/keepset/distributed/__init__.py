"""Selection over more rows than one machine holds."""

from .select import select_distributed

__all__ = ["select_distributed"]
