"""Class orders, and a data set cut into episodes along one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..checks import check_range, read_generator, whole_number
from .dataset import Dataset, Episode

Order = str | int | Sequence[int]


def class_order(classes: int, order: Order = "canonical") -> list[int]:
    """The class ids in the order they are learned: `canonical`, a seed, or a list that names every class once.

    A seed gives the permutation of `torch.manual_seed(seed); torch.randperm(classes)` without touching torch's own
    generator.

    >>> class_order(4, [2, 0, 3, 1])
    [2, 0, 3, 1]
    """
    if isinstance(order, str):
        if order != "canonical":
            raise ValueError(f"order must be 'canonical', a seed or a list of class ids, got {order!r}")
        return list(range(classes))
    if not isinstance(order, Sequence):
        seed = whole_number("order", order)
        return [int(label) for label in torch.randperm(classes, generator=read_generator(seed))]
    given = [check_range("a class id in order", label, 0, classes - 1, "the classes") for label in order]
    twice = sorted({label for label in given if given.count(label) > 1})
    if twice:
        raise ValueError(f"order must name every class once, got class {twice[0]} twice")
    if len(given) != classes:
        lacking = min(set(range(classes)) - set(given))
        raise ValueError(f"order must name all {classes} classes, got {len(given)}; class {lacking} is missing")
    return given


def split_classes(order: Sequence[int], episodes: int | Sequence[int]) -> list[tuple[int, ...]]:
    """The classes of each episode: that many of equal size, or sizes one by one.

    >>> split_classes([2, 0, 3, 1], 2)
    [(2, 0), (3, 1)]
    >>> split_classes([2, 0, 3, 1], [1, 3])
    [(2,), (0, 3, 1)]
    """
    sizes = _sizes(len(order), episodes)
    ends = [sum(sizes[: position + 1]) for position in range(len(sizes))]
    return [tuple(order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(classes: int, episodes: int | Sequence[int]) -> list[int]:
    if not isinstance(episodes, Sequence):
        count = check_range("episodes", episodes, 1, classes, "the number of classes")
        if classes % count:
            divisors = ", ".join(str(number) for number in range(1, classes + 1) if classes % number == 0)
            remedy = f"choose from {divisors}, or give a list of sizes"
            raise ValueError(f"episodes must divide the {classes} classes, got {count}; {remedy}")
        return [classes // count] * count
    if isinstance(episodes, str):
        raise ValueError(f"episodes must be a number or a list of sizes, got {episodes!r}")
    sizes = [check_range("a size in episodes", size, 1, classes, "the number of classes") for size in episodes]
    if sum(sizes) != classes:
        raise ValueError(f"the sizes in episodes must add up to the {classes} classes, got {sizes}: {sum(sizes)}")
    return sizes


def episodes(dataset: Dataset, order: Order = "canonical", episodes: int | Sequence[int] = 1) -> list[Episode]:
    """The data set as a list of episodes. Within one, images keep the order they have in the data set."""
    groups = split_classes(class_order(dataset.classes, order), episodes)
    return [_episode(dataset, classes) for classes in groups]


def _episode(dataset: Dataset, classes: tuple[int, ...]) -> Episode:
    wanted = torch.tensor(classes)
    train = torch.isin(dataset.train_labels, wanted).nonzero().flatten()
    test = torch.isin(dataset.test_labels, wanted).nonzero().flatten()
    return Episode(
        classes=classes,
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        test_images=dataset.test_images[test],
        test_labels=dataset.test_labels[test],
        train_rows=train,
    )
