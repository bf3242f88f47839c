"""The five numbers of a class-incremental run, all functions of its accuracy matrix.

The matrix is a list of rows: row t (counted from 1) holds the accuracies on episodes 1…t after episode t, each over all
classes seen by then, as fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]

NAMES = ("FAA", "AAA", "forgetting", "stability")


def check_matrix(matrix: Matrix) -> None:
    if not matrix:
        raise ValueError("the accuracy matrix must have at least one row, got none")
    for number, row in enumerate(matrix, start=1):
        if len(row) != number:
            raise ValueError(f"row {number} of the accuracy matrix must have {number} entries, got {len(row)}")
        if not all(0 <= value <= 1 for value in row):
            raise ValueError(f"row {number} of the accuracy matrix must hold fractions in 0..1, got {list(row)}")


def average_accuracies(matrix: Matrix) -> list[float]:
    """AA_t = mean_i A_{i,t} for every t.

    >>> average_accuracies([[1.0], [0.5, 1.0]])
    [1.0, 0.75]
    """
    check_matrix(matrix)
    return [sum(row) / len(row) for row in matrix]


def final_average_accuracy(matrix: Matrix) -> float:
    """FAA = AA_T."""
    return average_accuracies(matrix)[-1]


def average_average_accuracy(matrix: Matrix) -> float:
    """AAA = mean_t AA_t.

    >>> average_average_accuracy([[1.0], [0.5, 1.0]])
    0.875
    """
    averages = average_accuracies(matrix)
    return sum(averages) / len(averages)


def forgetting(matrix: Matrix) -> float:
    """F = mean_{i<T} (max_{i≤j≤T} A_{i,j} − A_{i,T}); NaN after one episode.

    >>> forgetting([[1.0], [0.5, 1.0]])
    0.5
    """
    check_matrix(matrix)
    last = len(matrix) - 1
    drops = [max(matrix[j][i] for j in range(i, last + 1)) - matrix[last][i] for i in range(last)]
    return sum(drops) / len(drops) if drops else math.nan


def stability(matrix: Matrix) -> float:
    """S = mean_{t≥2} mean_{i<t} A_{i,t}; NaN after one episode.

    >>> stability([[1.0], [0.5, 1.0], [0.25, 0.75, 1.0]])
    0.5
    """
    check_matrix(matrix)
    old = [sum(row[:-1]) / (len(row) - 1) for row in matrix[1:]]
    return sum(old) / len(old) if old else math.nan


def all_metrics(matrix: Matrix) -> dict[str, float]:
    """Every number by its name."""
    values = (
        final_average_accuracy(matrix),
        average_average_accuracy(matrix),
        forgetting(matrix),
        stability(matrix),
    )
    return dict(zip(NAMES, values, strict=True))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error; of one value there is no error (NaN).

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, math.nan
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
