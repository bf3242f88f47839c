"""The settings of the cover methods: each default is written here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks import check_choice, check_range, nearest_name, positive_number, whole_number

if TYPE_CHECKING:  # tables of results read the defaults, without torch
    from torch import Tensor

    from .inputs import Array

METRICS = ("cosine", "euclidean", "literal")
KERNELS = ("rbf", "laplace", "tophat")
WEIGHTS = ("printed", "inverse", "density", "equal")
BANDWIDTHS = ("median", "episode", "knn")
UNCOVERED = ("each", "shared")
FUSIONS = ("sum-then-max", "max-then-sum")
POINT_WEIGHTS = ("purity", "density")
SEARCHES = ("exact", "stochastic")


@dataclass(frozen=True)
class Cover:
    """How coverage is measured. Soft cover reads all but `uncovered`; hard cover reads `weights`, `neighbours`,
    `uncovered` and `point_weights`, and the rest for the `density` of points and to order what is left once everything
    is covered."""

    weights: str | Sequence[float] | Mapping[str, float] = "printed"
    """The weight (α) of each view: a rule, or numbers in the order of the views or by name."""
    bandwidth: str | float | Sequence[float] | Mapping[str, float] = "median"
    """The bandwidth (σ): a rule, a number for all views, or numbers in their order or by name. `episode`: over all
    classes at once."""
    metric: str = "cosine"
    """The distance that kernel and bandwidth read."""
    neighbours: int | None = None
    """k; None for points / budget."""
    uncovered: str = "each"
    """Hard cover: one uncovered set for `each` view, or one `shared` by all as Alg. 2 is printed."""
    fusion: str = "sum-then-max"
    """Soft cover: the best of the summed kernels (Alg. 1), or the sum of each view's best (as in F)."""
    kernel: str = "rbf"
    """The shape of soft cover."""
    bandwidth_scale: float = 1.0
    """A factor on every bandwidth."""
    point_weights: str | Array | Sequence[float] | None = None
    """What covering each point is worth: a rule, or a number each; None for one each. The rules are in targets.py,
    which turns them into numbers before anything is covered."""
    point_power: float = 2.0
    """The power to which a rule of `point_weights` is raised."""
    purity_view: str | int | None = None
    """The view, by name or position, whose neighbours `point_weights="purity"` looks at; None for the second, or the
    only one: by habit the self-supervised view stands behind the supervised one."""
    search: str = "exact"
    """`exact`: each pick is the best there is. `stochastic` (soft cover): the best of a random sample of candidates."""
    epsilon: float = 0.1
    """What the stochastic search may lose: on average it reaches 1 − 1/e − epsilon of the best coverage, or more."""
    memory: str | int = "auto"
    """Bytes that the distances may take; more, and they are computed in blocks. `auto`: half of what is free.

    On a CPU n² bytes of it (soft cover, exact search) hold similarities in sixteen bits then, where they fit.
    """
    on_pick: Callable[[int, float], object] | None = None
    """Called after each pick with its index and gain."""

    def __post_init__(self) -> None:
        if isinstance(self.weights, str):
            check_choice("weights", self.weights, WEIGHTS)
        if isinstance(self.bandwidth, str):
            check_choice("bandwidth", self.bandwidth, BANDWIDTHS)
        elif not is_several(self.bandwidth):
            self._settle("bandwidth", positive_number("bandwidth", self.bandwidth))
        check_choice("metric", self.metric, METRICS)
        check_choice("uncovered", self.uncovered, UNCOVERED)
        check_choice("fusion", self.fusion, FUSIONS)
        check_choice("kernel", self.kernel, KERNELS)
        self._settle("bandwidth_scale", positive_number("bandwidth_scale", self.bandwidth_scale))
        if self.neighbours is not None:
            self._settle("neighbours", whole_number("neighbours", self.neighbours))
        self._check_rule()
        check_choice("search", self.search, SEARCHES)
        self._settle("epsilon", positive_number("epsilon", self.epsilon))
        if self.epsilon >= 1:
            raise ValueError(f"epsilon must be above 0 and below 1, got {self.epsilon}")
        if self.epsilon != Cover.epsilon and self.search != "stochastic":
            raise ValueError(f"epsilon={self.epsilon} is for search='stochastic'; set that, or leave it out")
        if isinstance(self.memory, str):
            check_choice("memory", self.memory, ("auto",))
        else:
            self._settle("memory", check_range("memory", self.memory, 1, 2**62, "bytes, or 'auto'"))
        if self.on_pick is not None and not callable(self.on_pick):
            raise ValueError(f"on_pick must be a function (index, gain), got {self.on_pick!r}")

    def _settle(self, name: str, value: object) -> None:
        """A number as Python's own: one of a small type would round or overflow what is reckoned with it."""
        object.__setattr__(self, name, value)

    def _check_rule(self) -> None:
        """Refuse a wrong rule of point weights, and settings of a rule where there is none."""
        rule = self.point_weights if isinstance(self.point_weights, str) else None
        if rule is not None:
            check_choice("point_weights", rule, POINT_WEIGHTS)
        power = positive_number("point_power", self.point_power)
        if power != Cover.point_power and rule is None:
            rules = " or ".join(map(repr, POINT_WEIGHTS))
            raise ValueError(f"point_power={self.point_power} is for point_weights {rules}; set one, or leave it out")
        self._settle("point_power", power)
        if self.purity_view is not None and rule != "purity":
            raise ValueError(f"purity_view={self.purity_view!r} is for point_weights 'purity'; leave it out")

    def weight_rule(self) -> str | None:
        """The rule, or None where numbers were given."""
        return self.weights if isinstance(self.weights, str) else None

    def given_weights(self, names: Sequence[str]) -> list[float]:
        """The numbers given, in the order of the views."""
        if isinstance(self.weights, str):
            raise TypeError(f"weights is the rule {self.weights!r}")
        if not is_several(self.weights):
            raise ValueError(f"weights must be a rule ({', '.join(WEIGHTS)}) or numbers by view, got {self.weights!r}")
        given = by_view("weights", self.weights, names)
        try:
            values = [float(value) for value in given]
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"weights must be numbers, one a view, got {given}") from None
        if not all(0 <= value < float("inf") for value in values) or sum(values) <= 0:
            raise ValueError(f"weights must be 0 or more, finite and not all 0, got {values}")
        return values

    def given_bandwidths(self, names: Sequence[str]) -> list[float] | None:
        """The numbers given, in the order of the views, times the scale; None where there is a rule."""
        if isinstance(self.bandwidth, str):
            return None
        several = is_several(self.bandwidth)
        values = by_view("bandwidth", self.bandwidth, names) if several else [self.bandwidth] * len(names)
        return [positive_number("bandwidth", value) * self.bandwidth_scale for value in values]

    def purity_view_of(self, names: Sequence[str]) -> str:
        """The name of the view whose neighbours purity looks at."""
        wanted = min(1, len(names) - 1) if self.purity_view is None else self.purity_view
        if isinstance(wanted, str):
            check_choice("purity_view", wanted, names)
            return wanted
        return names[check_range("purity_view", wanted, 0, len(names) - 1, "a view's name, or its position")]

    def worth(self, count: int) -> Tensor:
        """(n,) float64, what each point is worth."""
        import torch

        from .inputs import read_vector

        if self.point_weights is None:
            return torch.ones(count, dtype=torch.float64)
        worth = read_vector("point_weights", self.point_weights, count)
        if not bool((worth >= 0).all()) or not float(worth.sum()) > 0:
            raise ValueError(
                f"point_weights must be 0 or more and not all 0, got {float(worth.min())} to {float(worth.max())}"
            )
        return worth / worth.max()

    def check_neighbours(self, count: int) -> None:
        if self.neighbours is not None:
            check_range("neighbours", self.neighbours, 1, count - 1, "the other points")


def is_several(value: Any) -> bool:
    """Whether it is numbers by view rather than one for all: a mapping, a list or an array with a length."""
    listed = isinstance(value, (Mapping, Sequence)) and not isinstance(value, (str, bytes))
    return listed or bool(getattr(value, "ndim", 0))


def by_view(argument: str, values: Any, names: Sequence[str]) -> list[Any]:
    """The values in the order of the views; if they have names, these must be just those of the views."""
    if not isinstance(values, Mapping):
        if len(values) != len(names):
            told = f"{argument} must be one number a view ({', '.join(names)}), {len(names)}"
            raise ValueError(f"{told}, got {len(values)}")
        return list(values)
    for name in values:
        if name not in names:
            raise ValueError(f"{argument} names an unknown view {name!r}; {nearest_name(name, names)}")
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"{argument} must name every view, {', '.join(map(repr, missing))} missing")
    return [values[name] for name in names]
