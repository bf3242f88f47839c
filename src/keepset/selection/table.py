"""The table of selectors: what each reads and takes, and where its function is, without loading it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .options import Cover

if TYPE_CHECKING:
    from .result import Selection

COVER = tuple(entry.name for entry in fields(Cover))
PER_POINT = ("uncertainty", "point_weights")
VIEWS: tuple[str, ...] = ("supervised", "simclr")  # of a run that names none


@dataclass(frozen=True)
class Entry:
    """One line of the table of selectors."""

    place: str
    """`module.function`, in this room."""
    views: str
    """Which views it reads: none, one, all."""
    options: tuple[str, ...]
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The options that have other values than those of `Cover` if nothing is said."""
    run_views: tuple[str, ...] = VIEWS
    """The views that it was measured with, and that a run makes for it if it names none."""

    def filled(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with its own defaults among them."""
        return {**self.defaults, **options}

    @property
    def function(self) -> Callable[..., Selection]:
        module, _, name = self.place.partition(".")
        found: Callable[..., Selection] = getattr(import_module(f".{module}", __package__), name)
        return found


SELECTORS: Mapping[str, Entry] = {
    "random": Entry("simple.random", "none", (), "uniform, without replacement"),
    "herding": Entry("simple.herding", "one", ("view",), "running mean towards the class mean (iCaRL)"),
    "closest": Entry("simple.closest", "one", ("view",), "closest to the class mean"),
    "teal": Entry("teal.teal", "one", ("view",), "typical points of ever more clusters (TEAL)"),
    "rainbow": Entry("rainbow.rainbow", "none", ("uncertainty",), "evenly from certain to uncertain (Rainbow Memory)"),
    "probcover": Entry("cover.probcover", "one", ("view", *COVER), "hard cover: most points within a radius"),
    "maxherding": Entry(
        "cover.maxherding", "one", ("view", *COVER), "soft cover: largest mean similarity to a kept point"
    ),
    "mers-probcover": Entry("cover.mers_probcover", "all", COVER, "hard cover of all views at once"),
    "mers": Entry("cover.mers", "all", COVER, "soft cover of all views at once (the default)"),
    "mers-pure": Entry(
        "cover.mers",
        "all",
        COVER,
        "mers, narrow, and first of points among their like (recommended where classes overlap)",
        {"bandwidth_scale": 0.5, "point_weights": "purity"},
        (*VIEWS, "previous"),
    ),
}
ALIASES = {"mers-maxherding": "mers"}
