"""ER with asymmetric cross-entropy (ER-ACE): what is new must not push away what is old."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .finetune import finetune
from .step import Batch, cross_entropy


def er_ace(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
    """½ [CE(new, only the classes of this minibatch) + CE(memory, all classes seen)].

    Two forwards, so that batch-norm sees new and memory apart.
    """
    if not memory:
        return finetune(model, new, memory, seen)
    (replayed,) = memory
    present = torch.zeros_like(seen).index_fill(0, new.labels, True)  # (classes,) those of this minibatch
    loss_new = cross_entropy(model(new.images), new.labels, present)
    loss_memory = cross_entropy(model(replayed.images), replayed.labels, seen)
    loss = (loss_new + loss_memory) / 2
    loss.backward()
    return loss.detach()
