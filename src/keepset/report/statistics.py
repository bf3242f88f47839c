"""Student's t distribution and the paired test, in plain Python."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..metrics import mean_and_error

TINY = 1e-300  # keeps the continued fraction from dividing by zero
ROUNDING = 1e-9  # per cent: sums in another order differ by 1e-14, and one image of a million by 1e-4


@dataclass(frozen=True)
class Paired:
    """Mean difference of pairs, its 95 % interval, and the two-sided p of the paired t test; NaN where undefined."""

    difference: float
    low: float
    high: float
    p: float
    differences: tuple[float, ...]
    """Of each pair."""

    @property
    def pairs(self) -> int:
        return len(self.differences)


def paired_test(values: Sequence[float], against: Sequence[float]) -> Paired:
    """The test of `values` − `against`, pair by pair; with fewer than two pairs there is neither interval nor p.

    Values are per cent; a difference that is one of rounding is none.

    >>> round(paired_test([1.0, 2.0, 4.0], [0.0, 1.0, 1.0]).p, 4)
    0.1296
    """
    differences = [without_rounding(value - other) for value, other in zip(values, against, strict=True)]
    count, each = len(differences), tuple(differences)
    if count < 2:
        return Paired(differences[0] if differences else math.nan, math.nan, math.nan, math.nan, each)
    mean, error = mean_and_error(differences)
    mean = without_rounding(mean)
    reach = t_quantile(0.975, count - 1) * error
    if error == 0:  # every pair differs by the same: no doubt at all, or nothing to doubt
        return Paired(mean, mean, mean, 0.0 if mean else math.nan, each)
    return Paired(mean, mean - reach, mean + reach, two_sided_p(mean / error, count - 1), each)


def without_rounding(difference: float) -> float:
    return 0.0 if abs(difference) < ROUNDING else difference


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| ≥ |t|) = I_x(ν/2, 1/2) at x = ν / (ν + t²), or 1 − I_1₋ₓ(1/2, ν/2)."""
    if t * t < 1:  # 1 − x by itself: taken from x, its digits would be lost near t = 0
        return 1 - incomplete_beta(0.5, freedom / 2, t * t / (freedom + t * t))
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@functools.cache
def t_quantile(level: float, freedom: float) -> float:
    """The t below which T lies with probability `level`, for a level in ½…1; halved out of the distribution."""
    if not 0.5 <= level < 1:
        raise ValueError(f"level must be in 0.5..1 (below 1), got {level!r}; use the symmetry for lower ones")
    outside = 2 * (1 - level)
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > outside:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > outside else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction where that is quick."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d₁/(1 + d₂/(1 + …)), from the front (Lentz): the numerators d alternate between two forms."""
    value, above, below = 1.0, 1.0, 0.0
    for step in range(1, 500):
        m, odd = divmod(step, 2)
        if odd:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / (1 + d * below or TINY)
        above = 1 + d / above or TINY
        value *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return value
