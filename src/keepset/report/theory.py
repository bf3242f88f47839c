"""The paper's model of what two views do to a class ("Detailed Theoretical Analysis"), as functions.

The class is G_0 = N(0, Σ) in R^n. A self-supervised view makes of it N(0, σΣ) (case i = 1) or N(0, σI) (case i = 2); a
supervised one makes of it N(0, Σ^½ D Σ^½), where D keeps m directions wide (α) and makes the other n − m narrow (β).
Views are compared at equal volume, that is at equal determinants. Everything is kept as a logarithm: the determinant
of a 512 × 512 covariance leaves the range of a float. α and β here are those of the paper's appendix, and have nothing
to do with the weight of a view (Eq. 5) and the ratio of weights (Eq. 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_range, positive_number

Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TwoLevels:
    """The matrix D: `kept` (m) entries `wide` (α) and the other `directions` − `kept` (n − m) entries `narrow` (β)."""

    directions: int
    kept: int
    log_wide: float
    log_narrow: float

    def __post_init__(self) -> None:
        check_range("directions", self.directions, 2, 2**31, "the dimension n")
        check_range("kept", self.kept, 1, self.directions - 1, "the directions m that stay wide, of n")

    @property
    def wide(self) -> float:
        return _exp(self.log_wide)

    @property
    def narrow(self) -> float:
        return _exp(self.log_narrow)

    @property
    def logs(self) -> Matrix:
        """(n,) the logarithms of the entries of D."""
        return np.repeat([self.log_wide, self.log_narrow], [self.kept, self.directions - self.kept])


def _exp(value: float) -> float:
    """e^value, infinite where it is beyond a float."""
    return math.exp(value) if value < 709 else math.inf


# ---------------------------------------------------------------- equal volume


def equal_volume(directions: int, kept: int, narrow: float, scale: float, log_det: float = 0.0) -> TwoLevels:
    """D with the α that gives it the volume of the self-supervised proxy, for β = `narrow` and σ = `scale`.

    Case 1, α^m β^(n−m) = σ^n: leave `log_det` out. Case 2, α^m β^(n−m) = σ^n / det Σ: `log_det` is ln det Σ.
    """
    narrow, scale = positive_number("narrow", narrow), positive_number("scale", scale)
    check_range("kept", kept, 1, directions - 1, "the directions m that stay wide, of n")
    log_volume = directions * math.log(scale) - log_det
    log_wide = (log_volume - (directions - kept) * math.log(narrow)) / kept
    return TwoLevels(directions, kept, log_wide, math.log(narrow))


# ---------------------------------------------------------------- covariances of the proxies


def scaled_proxy(covariance: Matrix, scale: float) -> Matrix:
    """σΣ, (n, n): the self-supervised view that keeps the shape of the class (i = 1)."""
    return positive_number("scale", scale) * covariance


def isotropic_proxy(directions: int, scale: float) -> Matrix:
    """σI, (n, n): the self-supervised view that spreads evenly (i = 2)."""
    return positive_number("scale", scale) * np.eye(directions)


def compressed_proxy(covariance: Matrix, levels: TwoLevels) -> Matrix:
    """Σ^½ D Σ^½, (n, n): the supervised view."""
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values)) @ vectors.T
    return np.asarray(root @ np.diag(np.exp(levels.logs)) @ root)


# ---------------------------------------------------------------- divergences


def gaussian_kl(first: Matrix, second: Matrix) -> float:
    """KL(N(0, first) ‖ N(0, second)) = ½ (tr(second⁻¹ first) − n + ln det second − ln det first)."""
    logs = []
    for name, covariance in (("first", first), ("second", second)):
        sign, log_det = np.linalg.slogdet(covariance)
        if sign <= 0:
            raise ValueError(f"{name} must be positive definite, got a determinant of sign {sign:g}")
        logs.append(float(log_det))
    trace = float(np.trace(np.linalg.solve(second, first)))
    return 0.5 * (trace - len(first) + logs[1] - logs[0])


def scaled_kl(directions: int, scale: float) -> float:
    """KL(G_0 ‖ N(0, σΣ)) = ½ (n/σ − n + n ln σ): the Lemma, i = 1. Σ cancels."""
    return 0.5 * directions * (1 / positive_number("scale", scale) - 1 + math.log(scale))


def isotropic_kl(directions: int, scale: float, trace: float, log_det: float) -> float:
    """KL(G_0 ‖ N(0, σI)) = ½ (tr Σ / σ − n + n ln σ − ln det Σ): the Lemma, i = 2."""
    return 0.5 * (trace / positive_number("scale", scale) - directions + directions * math.log(scale) - log_det)


def diagonal_kl(logs: Sequence[float] | Matrix) -> float:
    """KL(G_0 ‖ N(0, Σ^½ D Σ^½)) = ½ (Σ 1/d_i − n + Σ ln d_i) for any diagonal D, given as ln d_i, of any volume."""
    logs = np.asarray(logs, dtype=np.float64)
    if np.isneginf(logs).any():  # a direction without spread
        return math.inf
    with np.errstate(over="ignore"):
        return float(0.5 * (np.expm1(-logs) + logs).sum())  # term by term: each is ≥ 0, and no large numbers cancel


def compressed_kl(levels: TwoLevels) -> float:
    """KL(G_0 ‖ supervised) = ½ (m/α + (n−m)/β − n + m ln α + (n−m) ln β), whatever the volume."""
    return diagonal_kl(levels.logs)


def printed_compressed_kl(levels: TwoLevels, scale: float, log_det: float = 0.0) -> float:
    """Eq. 7, ½ (m/α + (n−m)/β − n + n ln σ), and with `log_det` Eq. 8, where − ln det Σ is added inside.

    Both have used the constraint of equal volume to write ln det D. They are `compressed_kl` where it holds (as for
    `equal_volume`) and no divergence elsewhere: there they can be negative.
    """
    inverse = _inverse_sum(levels)
    return 0.5 * (inverse - levels.directions + levels.directions * math.log(scale) - log_det)


def _inverse_sum(levels: TwoLevels) -> float:
    """tr D⁻¹ = m/α + (n − m)/β"""
    return levels.kept * _exp(-levels.log_wide) + (levels.directions - levels.kept) * _exp(-levels.log_narrow)


# ---------------------------------------------------------------- the propositions


def gap_to_scaled(levels: TwoLevels, scale: float) -> float:
    """KL(G_0 ‖ supervised) − KL(G_0 ‖ N(0, σΣ)) = ½ (m/α + (n−m)/β − n/σ) at equal volume (Proposition 1).

    Never negative, by the means of 1/α and 1/β, and 0 for α = β = σ alone.
    """
    return 0.5 * (_inverse_sum(levels) - levels.directions / positive_number("scale", scale))


def gap_to_isotropic(levels: TwoLevels, scale: float, trace: float) -> float:
    """KL(G_0 ‖ supervised) − KL(G_0 ‖ N(0, σI)) = ½ (m/α + (n−m)/β − tr Σ / σ) at equal volume (Proposition 2).

    Negative for β between β_0 and α, unless Σ is a multiple of I: there the supervised view is the closer one.
    """
    return 0.5 * (_inverse_sum(levels) - trace / positive_number("scale", scale))


def narrow_enough(eigenvalues: Sequence[float] | Matrix, kept: int, scale: float) -> float:
    """β_0 of Proposition 2: the gap is positive for all β below it, and not for those between it and α.

    The gap falls with β until α = β = σ / (det Σ)^(1/n), where it is n/σ times (geometric − arithmetic mean of the
    eigenvalues of Σ) / 2 ≤ 0; and at β = (n−m) σ / tr Σ it is m / 2α > 0. β_0 is halved out between these two.
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.ndim != 1 or not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError("eigenvalues must be a list of positive numbers, those of Σ")
    count, trace, log_det = len(values), float(values.sum()), float(np.log(values).sum())
    check_range("kept", kept, 1, count - 1, "the directions m that stay wide, of n")
    low = math.log((count - kept) * positive_number("scale", scale) / trace)
    high = math.log(scale) - log_det / count
    for _ in range(100):
        middle = (low + high) / 2
        gap = gap_to_isotropic(equal_volume(count, kept, math.exp(middle), scale, log_det), scale, trace)
        low, high = (middle, high) if gap > 0 else (low, middle)
    return math.exp(low)


def risk_gap_bound(kl: float, share: float) -> float:
    """|R_test − R_train| ≤ π √(KL/2), π = `share` of the class (the Corollary), and never more than π.

    The paper's main text prints KL alone, without π and the root. That does not follow: for KL < π²/2 it is smaller
    than what is proved. From KL = 2 on the root is 1 and the bound says nothing, since the gap cannot exceed π.
    """
    if not kl >= 0:
        raise ValueError(f"kl must be 0 or more, got {kl!r}")
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in 0..1 (the share of the class), got {share!r}")
    return share * min(1.0, math.sqrt(kl / 2))


# ---------------------------------------------------------------- the model fitted to eigenvalues


def fit_two_levels(logs: Sequence[float] | Matrix) -> TwoLevels:
    """The D of two levels nearest to a diagonal, given as ln d_i in falling order: least squares over all splits m.

    α and β are geometric means, so the volume stays, and `compressed_kl` of the fit is at most that of the diagonal.
    """
    logs = np.asarray(logs, dtype=np.float64)
    if len(logs) < 2 or (np.diff(logs) > 0).any():
        raise ValueError("logs must be two or more numbers in falling order; sort them first")
    count, total = len(logs), logs.sum()
    sizes = np.arange(1, count)
    first = np.cumsum(logs)[:-1]
    explained = first**2 / sizes + (total - first) ** 2 / (count - sizes)  # least squares = most explained
    kept = int(sizes[explained.argmax()])
    return TwoLevels(count, kept, float(logs[:kept].mean()), float(logs[kept:].mean()))
