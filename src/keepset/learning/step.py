"""What every learner's step is made of: batches, settings, the one masking rule, and forwards that leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..checks import check_range, positive_number
from .compiling import compiled
from .resnet import Classifier

LARGEST = 2**31


@dataclass(frozen=True)
class Batch:
    """Images (b, channels, height, width), augmented and normalised, and their labels (b,).

    Of several runs, where the network is that of several: (runs, b, …) each.
    """

    images: Tensor
    labels: Tensor


Gradients = Callable[[nn.Module, Batch, Sequence[Batch], Tensor], Tensor]
"""(model, new, memory, seen) -> loss. Adds its gradients to `.grad`: zeroing and the optimiser are the trainer's.

memory: one batch for each of the learner's draws; empty in the first episode, where nothing is replayed.
seen: (classes,) bool, the classes seen so far, those of this episode included. Made of tensor operations of fixed
shape, so that a step can be captured and played again: what depends on the data is a mask, never a branch.
"""

Loss = Callable[[nn.Module, Batch, Sequence[Batch], Tensor], Tensor]
"""The same arguments -> a loss to be differentiated."""


@dataclass(frozen=True)
class Descent:
    """The gradients of a loss."""

    loss: Loss

    def __call__(self, model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
        loss = self.loss(model, new, memory, seen)
        loss.backward()
        return loss.detach()


@dataclass(frozen=True)
class Prepared:
    """A learner made ready for one model; `draw` draws anew, in place, what it draws once an episode."""

    gradients: Gradients
    draw: Callable[[torch.Generator], None]


Begin = Callable[[nn.Module, bool], Prepared]
"""(model, whether to compile) -> the learner made ready."""


@dataclass(frozen=True)
class LearnerSettings:
    """The settings of all learners: each default is written here and nowhere else."""

    memory_batch: int = 10
    """Replayed images a step; STAR takes as many again."""
    mir_candidates: int = 50
    """MIR: the memory samples that are scored, of which `memory_batch` are replayed."""
    star_gamma: float = 0.01
    """STAR: how far a weight tensor is moved, relative to its norm (γ)."""
    star_lambda: float = 0.1
    """STAR: the weight of the divergence (λ)."""
    star_noise: float = 0.0
    """STAR: how far from the weights the ascent starts, relative to each tensor's norm.

    0: ever less far, the limit, and in the head's weight alone, where the head is known and linear: that costs less,
    and leads as far up.
    """
    star_moves_statistics: bool = False
    """STAR: whether its forwards move the running statistics of batch-norm."""
    rate: float | None = None
    """The learning rate; None for the learner's own."""

    def __post_init__(self) -> None:
        for name in ("memory_batch", "mir_candidates"):
            check_range(name, getattr(self, name), 1, LARGEST, "images a step")
        for name in ("star_gamma", "star_lambda"):
            positive_number(name, getattr(self, name))
        if not 0 <= self.star_noise < float("inf"):
            raise ValueError(f"star_noise must be 0 (the limit) or a positive number, got {self.star_noise!r}")
        if self.rate is not None:
            positive_number("rate", self.rate)


@dataclass(frozen=True)
class Learner:
    """A step and what it wants. An own learner is one function: `Learner("mine", gradients, draws=(10,), rate=0.1)`."""

    name: str
    gradients: Gradients
    """The step; call it by way of `prepare`."""
    draws: tuple[int, ...]
    """How many memory samples a step it wants, a batch for each number."""
    rate: float
    """The learning rate."""
    holds_new_classes: bool = False
    """Whether the memory also holds random exemplars of the classes being learned."""
    joint: bool = False
    """Whether it trains on all data so far instead of replaying."""
    begin: Begin | None = None
    """Makes it ready, for a learner that draws something once an episode; None: `gradients` is the step."""
    shares_first: bool = False
    """Whether with nothing to replay it is finetuning, to the bit: such learners may share a first episode."""
    stackable: bool = False
    """Whether its loss takes batches of several runs, and gives one number for each."""

    def ready(self, model: nn.Module, compiling: bool = False) -> Prepared:
        """For as many episodes as there are: before each, `draw` what is drawn once an episode."""
        if self.begin is not None:
            return self.begin(model, compiling)
        return Prepared(compiled_descent(self.gradients) if compiling else self.gradients, lambda _: None)

    def prepare(self, model: nn.Module, generator: torch.Generator) -> Gradients:
        """The step of one episode. All that a learner draws is drawn here: the step itself draws nothing.

        The same generator state gives the same step, so an episode that is resumed must prepare as it did at first.
        """
        prepared = self.ready(model)
        prepared.draw(generator)
        return prepared.gradients


def compiled_descent(gradients: Gradients) -> Gradients:
    """With its loss compiled, if it descends one; any other step is as it was."""
    return Descent(compiled(gradients.loss, small=True)) if isinstance(gradients, Descent) else gradients


def joined(batches: Sequence[Batch]) -> Batch:
    """The batches one after the other."""
    images, labels = ([getattr(batch, name) for batch in batches] for name in ("images", "labels"))
    after_runs = labels[0].ndim - 1
    return Batch(torch.cat(images, after_runs), torch.cat(labels, after_runs))


def apart(model: nn.Module, batches: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The logits of each batch, batch-norm's statistics taken of each by itself, as by a forward each.

    A network of ours does it in one forward, which keeps a GPU busier; any other has one forward for each.
    """
    if not isinstance(model, Classifier):
        return tuple(model(batch) for batch in batches)
    sizes = tuple(batch.shape[-4] for batch in batches)
    logits: Tensor = model(torch.cat(list(batches), -4), sizes)
    split: tuple[Tensor, ...] = logits.split(sizes, -2)
    return split


def masked(logits: Tensor, seen: Tensor) -> Tensor:
    """(b, classes) logits, the lowest number there is where a class is not seen; of several runs, (runs, …) both.

    Softmax gives exactly 0 there and the gradient is exactly 0. It is not −∞, since 0 · ∞ would spoil divergences.
    """
    return logits.masked_fill(~seen.unsqueeze(-2), torch.finfo(logits.dtype).min)


def cross_entropy(logits: Tensor, labels: Tensor, seen: Tensor, reduction: str = "mean") -> Tensor:
    """Over the classes seen; `labels` must be among them. Of several runs: one mean for each."""
    if logits.ndim == 3:
        losses = nn.functional.cross_entropy(masked(logits, seen).flatten(0, 1), labels.flatten(), reduction="none")
        return losses.view(labels.shape).mean(-1)
    return nn.functional.cross_entropy(masked(logits, seen), labels, reduction=reduction)


def leaves(model: nn.Module) -> dict[str, Tensor]:
    """The trainable weights by name, each a leaf of its own that shares memory with the model's."""
    return {name: weight.detach().requires_grad_() for name, weight in model.named_parameters() if weight.requires_grad}


def detached(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For forwards without gradient. Under autocast no_grad would not do: it caches casts that have no gradient."""
    return {name: weight.detach() for name, weight in weights.items()}


def logits_at(
    model: nn.Module, weights: Mapping[str, Tensor], images: Tensor, moves_statistics: bool = False
) -> Tensor:
    """The model's logits at other weights. Neither its weights nor, unless asked, its running statistics change."""
    logits: Tensor = functional_call(model, {**weights, **still(model, moves_statistics)}, (images,))
    return logits


def still(model: nn.Module, moves_statistics: bool = False) -> dict[str, Tensor]:
    """Copies for a forward to move in place of the running statistics, unless these are to be moved."""
    return {} if moves_statistics else {name: buffer.clone() for name, buffer in model.named_buffers()}


def add_gradients(model: nn.Module, gradients: Mapping[str, Tensor], compiling: bool = False) -> None:
    """Add to `.grad`, by the weights' names; in one go, but for those laid out otherwise."""
    sums, added = [], []
    for name, weight in model.named_parameters():
        if name not in gradients:
            continue
        if weight.grad is None:  # laid out as the weight is: torch warns of any other
            weight.grad = torch.zeros_like(weight)
        if weight.grad.stride() == gradients[name].stride():
            sums.append(weight.grad)
            added.append(gradients[name])
        else:
            weight.grad.add_(gradients[name])
    if sums:
        compiled(_add, compiling, small=True)(sums, added)


def _add(sums: list[Tensor], added: list[Tensor]) -> None:
    torch._foreach_add_(sums, added)
