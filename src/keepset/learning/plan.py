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
    """The steps of one epoch: which images, and how each is cropped. A step's new images come first, then each draw."""

    rows: Tensor
    """(steps, batch) of all images there are; a last short batch of new images is dropped."""
    crops: Draws
    """(steps, batch) each"""

    def __len__(self) -> int:
        return len(self.rows)

    def packed(self) -> Tensor:
        """(steps, 4, batch) in one tensor: row, top, left and flip."""
        return torch.stack([self.rows, self.crops.top, self.crops.left, self.crops.flip.long()], dim=1)


def seed_of(*parts: object) -> int:
    """A seed of its own for every purpose, the same on every machine.

    >>> seed_of(0, "order") == seed_of(0, "order"), seed_of(0, "order") == seed_of(1, "order")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8]) >> 1


def generator_of(*parts: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*parts))


def batch_sizes(batch: int, draws: Sequence[int], held: int) -> tuple[int, ...]:
    """How many new images a step, and how many for each draw from a memory of `held`; no draws without a memory.

    A draw of more than the memory holds (MIR's candidates) is all of it, but never less than a batch.
    """
    return (batch, *(max(min(size, held), min(size, batch)) for size in draws if held))


def plan_epoch(
    new: Tensor,
    memory: Tensor,
    sizes: Sequence[int],
    padding: int,
    flip: bool,
    seed: tuple[object, ...],
    epoch: int,
) -> Plan:
    """One pass over the rows `new`, with draws from the rows `memory`; `seed` names run and episode."""
    batch, *draws = sizes
    steps = len(new) // batch
    order = torch.randperm(len(new), generator=generator_of(*seed, "order", epoch))
    rows = [new[order[: steps * batch]]]
    for number, size in enumerate(draws):
        drawn = endless(len(memory), steps * size, epoch * steps * size, (*seed, "memory", number))
        rows.append(memory[drawn])
    crops = [
        draw_crops(len(part), padding, flip, generator_of(*seed, "crops", number, epoch))
        for number, part in enumerate(rows)
    ]
    return Plan(
        _beside(rows, steps), Draws(*(_beside([vars(c)[name] for c in crops], steps) for name in vars(crops[0])))
    )


def _beside(parts: Sequence[Tensor], steps: int) -> Tensor:
    """(steps, batch): what belongs to one step in one row."""
    return torch.cat([part.view(steps, len(part) // max(steps, 1)) for part in parts], dim=1)


def endless(held: int, length: int, begin: int, seed: tuple[object, ...]) -> Tensor:
    """Places `begin` … of an endless row of shuffled passes over 0..held-1; each pass has a seed of its own."""
    first, last = begin // held, (begin + length - 1) // held
    passes = [torch.randperm(held, generator=generator_of(*seed, number)) for number in range(first, last + 1)]
    return torch.cat(passes)[begin - first * held :][:length]
