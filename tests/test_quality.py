"""Neighbours that share a label: against a loop over points and scikit-learn's classifier."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from keepset.views import quality
from keepset.views.quality import neighbour_accuracy


def clumps(count: int, classes: int, size: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around a centre for each class, so wide that some lie on the wrong side."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=source)
    centres = torch.randn(classes, size, generator=source)
    return centres[labels] + torch.randn(count, size, generator=source), labels


def slow_accuracy(features: Tensor, labels: Tensor, neighbours: int) -> float:
    """One point at a time, in float64: most votes, and then the larger sum of similarities."""
    units = features.double() / features.double().norm(dim=1, keepdim=True)
    right = 0
    for point in range(len(units)):
        others = [(float(units[point] @ units[other]), int(labels[other])) for other in range(len(units))]
        del others[point]
        ballot: dict[int, list[float]] = defaultdict(list)
        for similarity, label in sorted(others, reverse=True)[:neighbours]:
            ballot[label].append(similarity)
        winner = max(ballot, key=lambda label: (len(ballot[label]), sum(ballot[label])))
        right += winner == int(labels[point])
    return right / len(units)


@pytest.mark.parametrize("neighbours", [1, 2, 4, 5, 20, 59, 200])
@pytest.mark.parametrize("classes", [2, 5])
def test_neighbour_accuracy__as_by_a_loop_over_points(neighbours: int, classes: int) -> None:
    """Even numbers of votes have ties; 200 is more than there are points."""
    features, labels = clumps(60, classes)
    expected = slow_accuracy(features, labels, neighbours)
    assert neighbour_accuracy(features, labels, neighbours) == pytest.approx(expected)


@pytest.mark.parametrize("neighbours", [1, 3, 7])
def test_neighbour_accuracy__as_scikit_learn_on_two_classes(neighbours: int) -> None:
    """An odd number of votes between two classes has no ties."""
    features, labels = clumps(50, 2, seed=3)
    right = 0
    for point in range(50):
        rest = np.arange(50) != point
        judge = KNeighborsClassifier(neighbours, metric="cosine").fit(features.numpy()[rest], labels.numpy()[rest])
        right += int(judge.predict(features.numpy()[[point]])[0] == int(labels[point]))
    assert neighbour_accuracy(features, labels, neighbours) == pytest.approx(right / 50)


@pytest.mark.parametrize("rows", [1, 7, 60])
def test_neighbour_accuracy__the_same_in_blocks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clumps(60, 3)
    expected = neighbour_accuracy(features, labels, 4)
    monkeypatch.setattr(quality, "ROWS", rows)
    assert neighbour_accuracy(features, labels, 4) == expected


def test_neighbour_accuracy__a_point_has_no_vote_for_itself() -> None:
    """Two pairs at right angles; the partner always has the other label."""
    features = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert neighbour_accuracy(features, torch.tensor([0, 1, 0, 1]), 1) == 0
    assert neighbour_accuracy(features, torch.tensor([0, 0, 1, 1]), 1) == 1


def test_neighbour_accuracy__the_length_of_a_feature_does_not_matter() -> None:
    """By distance the long point would lie nearer to the other class."""
    features = torch.tensor([[1.0, 0], [100, 1], [0, 1], [1, 100]])
    assert neighbour_accuracy(features, torch.tensor([0, 0, 1, 1]), 1) == 1


def test_neighbour_accuracy__among_equal_votes_the_more_similar_labels_win() -> None:
    """Each point of one clump has one vote from it, and one or two from far away; label order is tried both ways."""
    angles = torch.tensor([0.0, 0.1, 1.5, 1.6])
    features = torch.stack([angles.cos(), angles.sin()], 1)
    for labels in ([0, 0, 1, 1], [1, 1, 0, 0]):
        assert neighbour_accuracy(features, torch.tensor(labels), 2) == 1


def test_neighbour_accuracy__more_votes_beat_nearer_ones() -> None:
    """The first point's nearest has another label, but two farther ones have its own, and those of the rest agree."""
    angles = torch.tensor([0.0, 0.01, 1.2, 1.3])
    features = torch.stack([angles.cos(), angles.sin()], 1)
    assert neighbour_accuracy(features, torch.tensor([0, 1, 0, 0]), 3) == 0.75


def test_neighbour_accuracy__opposite_neighbours_still_have_a_full_vote() -> None:
    """Similarity -1 takes a little off a vote and never turns it."""
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    assert neighbour_accuracy(features, torch.tensor([0, 0, 0, 1]), 3) == 0.75


def test_neighbour_accuracy__a_point_is_not_its_own_neighbour_when_all_others_are_opposite() -> None:
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert neighbour_accuracy(features, torch.tensor([0, 1]), 1) == 0


def test_neighbour_accuracy__any_whole_numbers_are_labels() -> None:
    features, labels = clumps(60, 3)
    names = torch.tensor([1000, -7, 12])
    assert neighbour_accuracy(features, names[labels], 5) == neighbour_accuracy(features, labels, 5)
    assert neighbour_accuracy(features, labels.to(torch.uint8), 5) == neighbour_accuracy(features, labels, 5)


def test_neighbour_accuracy__leaves_its_arguments_alone() -> None:
    features, labels = clumps(20, 3)
    copies = features.clone(), labels.clone()
    neighbour_accuracy(features, labels, 3)
    assert torch.equal(features, copies[0])
    assert torch.equal(labels, copies[1])


@pytest.mark.parametrize(
    ("count", "labels", "neighbours", "message"),
    [
        (4, 4, 0, r"neighbours must be in 1\.\."),
        (4, 4, 2.5, "neighbours must be a whole number"),
        (4, 3, 1, r"labels must be one a point \(4\), got 3"),
        (1, 1, 1, "features must hold at least 2 points, got 1"),
    ],
)
def test_neighbour_accuracy__bad_arguments_are_named(count: int, labels: int, neighbours: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        neighbour_accuracy(torch.rand(count, 2), torch.zeros(labels, dtype=torch.int64), neighbours)
