"""Every random draw of an epoch, made ahead from seeds alone: what ran before, or was resumed, changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .augment import Draws, draw_crops


@dataclass(frozen=True)
class Plan:
    """The steps of one epoch: row numbers and crops, for the new images and for each draw from the memory."""

    new: Tensor
    """(steps, batch) rows of the new images; a last short batch is dropped."""
    memory: tuple[Tensor, ...]
    """(steps, size) rows of the memory, one for each draw that the learner wants; none without a memory."""
    crops: tuple[Draws, ...]
    """For `new` and then each of `memory`, flat: the crop of row i of step s is entry s · size + i."""

    def __len__(self) -> int:
        return len(self.new)


def seed_of(*parts: object) -> int:
    """A seed of its own for every purpose, the same on every machine.

    >>> seed_of(0, "order") == seed_of(0, "order"), seed_of(0, "order") == seed_of(1, "order")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8]) >> 1


def generator_of(*parts: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*parts))


def plan_epoch(
    count: int,
    held: int,
    batch: int,
    draws: Sequence[int],
    padding: int,
    flip: bool,
    seed: tuple[object, ...],
    epoch: int,
) -> Plan:
    """One pass over `count` new images; `held` is the size of the memory; `seed` names run and episode."""
    order = torch.randperm(count, generator=generator_of(*seed, "order", epoch))
    steps = count // batch
    # a draw of more than the memory holds (MIR's candidates) is all of it, but never less than a batch
    sizes = [max(min(size, held), min(size, batch)) for size in draws] if held else []
    memory = tuple(
        endless(held, steps * size, epoch * steps * size, (*seed, "memory", number)).view(steps, size)
        for number, size in enumerate(sizes)
    )
    crops = tuple(
        draw_crops(rows.numel(), padding, flip, generator_of(*seed, "crops", number, epoch))
        for number, rows in enumerate((order[: steps * batch], *memory))
    )
    return Plan(order[: steps * batch].view(steps, batch), memory, crops)


def endless(held: int, length: int, begin: int, seed: tuple[object, ...]) -> Tensor:
    """Places `begin` … of an endless row of shuffled passes over 0..held-1; each pass has a seed of its own."""
    first, last = begin // held, (begin + length - 1) // held
    passes = [torch.randperm(held, generator=generator_of(*seed, number)) for number in range(first, last + 1)]
    return torch.cat(passes)[begin - first * held :][:length]
