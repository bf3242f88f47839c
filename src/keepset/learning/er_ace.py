"""ER with asymmetric cross-entropy (ER-ACE): what is new must not push away what is old."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .finetune import finetune_loss
from .step import Batch, Descent, apart, cross_entropy


def er_ace_loss(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
    """½ [CE(new, only the classes of this minibatch) + CE(memory, all classes seen)].

    Batch-norm sees new and memory apart.
    """
    if not memory:
        return finetune_loss(model, new, memory, seen)
    (replayed,) = memory
    logits_new, logits_memory = apart(model, [new.images, replayed.images])
    classes = torch.arange(seen.shape[-1], device=seen.device)
    present = (new.labels[..., None] == classes).any(-2)  # (classes,) those of this minibatch
    loss_new = cross_entropy(logits_new, new.labels, present)
    loss_memory = cross_entropy(logits_memory, replayed.labels, seen)
    return (loss_new + loss_memory) / 2


er_ace = Descent(er_ace_loss)
