"""Train one episode: the trainer owns the draws, the optimiser and the schedule; the learner owns the loss."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..checks import check_choice, check_range
from .augment import augment
from .plan import Plan, generator_of, plan_epoch
from .step import Batch, Gradients, Learner


@dataclass(frozen=True)
class TrainSettings:
    """How an episode is trained; the learner brings its own learning rate."""

    epochs: int = 100
    batch: int = 10
    momentum: float = 0.9
    weight_decay: float = 2e-4
    decay: float = 0.3
    """The learning rate is multiplied by this …"""
    decay_at: float = 0.66
    """… after this part of the epochs."""
    precision: str = "auto"
    """`float32`, `bfloat16` (autocast), or `auto`: bfloat16 on CUDA, float32 elsewhere."""

    def __post_init__(self) -> None:
        check_range("epochs", self.epochs, 1, 10**6, "passes over the new images")
        check_range("batch", self.batch, 1, 10**6, "new images a step")
        check_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        for name in ("momentum", "weight_decay", "decay", "decay_at"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in 0..1, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Material:
    """Images to train on, with what is needed to augment them."""

    images: Tensor
    """(n, c, h, w) uint8"""
    labels: Tensor
    mean: Tensor
    """(c,) of pixel / 255, on the images' device, as is `std`."""
    std: Tensor
    padding: int
    flip: bool


@dataclass(frozen=True)
class Memory:
    """What may be replayed; empty in the first episode."""

    images: Tensor
    labels: Tensor


class EpisodeTrainer:
    """One episode, epoch by epoch, so that it can be saved and taken up between any two."""

    def __init__(
        self,
        model: nn.Module,
        learner: Learner,
        settings: TrainSettings,
        material: Material,
        memory: Memory,
        seen: Tensor,
        seed: tuple[object, ...],
    ) -> None:
        self.model, self.learner, self.settings = model, learner, settings
        self.material, self.memory, self.seen, self.seed = material, memory, seen, seed
        self.optimiser = torch.optim.SGD(
            model.parameters(),
            lr=learner.rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
        )
        self.gradients: Gradients = learner.prepare(model, generator_of(*seed, "learner"))
        self.epoch = 0
        self.steps = len(material.images) // settings.batch
        """Steps an epoch."""

    def rate(self, epoch: int) -> float:
        """× decay once `decay_at` of the epochs are over: after 66 of 100, after 7 of 10. `epoch` counts from 0."""
        late = epoch >= math.ceil(self.settings.decay_at * self.settings.epochs - 1e-9)
        return self.learner.rate * (self.settings.decay if late else 1.0)

    def train_epoch(self) -> float:
        """One pass over the new images; the mean loss."""
        plan = plan_epoch(
            len(self.material.images),
            len(self.memory.images),
            self.settings.batch,
            self.learner.draws,
            self.material.padding,
            self.material.flip,
            self.seed,
            self.epoch,
        )
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(self.epoch)
        self.model.train()
        losses = []
        with torch.enable_grad():  # whatever the caller is in the middle of
            for step in range(len(plan)):
                losses.append(self._step(plan, step))
        self.epoch += 1
        return float(torch.stack(losses).mean()) if losses else 0.0

    def _step(self, plan: Plan, step: int) -> Tensor:
        new = self._batch(self.material.images, self.material.labels, plan, 0, plan.new[step], step)
        memory = [
            self._batch(self.memory.images, self.memory.labels, plan, 1 + number, rows[step], step)
            for number, rows in enumerate(plan.memory)
        ]
        self.optimiser.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.gradients(self.model, new, memory, self.seen)
        self.optimiser.step()
        return loss.detach()

    def _batch(self, images: Tensor, labels: Tensor, plan: Plan, source: int, rows: Tensor, step: int) -> Batch:
        """Rows of a step, cropped and flipped as planned."""
        crops = plan.crops[source].part(step * len(rows), (step + 1) * len(rows))
        rows = rows.to(images.device)
        material = self.material
        return Batch(augment(images[rows], crops, material.padding, material.mean, material.std), labels[rows])

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        device = self.seen.device.type
        wanted = self.settings.precision
        if wanted == "float32" or (wanted == "auto" and device != "cuda"):
            return contextlib.nullcontext()
        return torch.autocast(device, torch.bfloat16)

    # ------------------------------------------------------------ saving

    def tensors(self) -> dict[str, Tensor]:
        """Model and momentum, by name: all that changes from epoch to epoch."""
        found = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            momentum = self.optimiser.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                found[f"momentum.{name}"] = momentum
        return found

    def restore(self, tensors: dict[str, Tensor], epoch: int) -> None:
        """Go on after `epoch` epochs."""
        load_model(self.model, tensors)
        for name, parameter in self.model.named_parameters():
            if f"momentum.{name}" in tensors:
                self.optimiser.state[parameter]["momentum_buffer"] = tensors[f"momentum.{name}"].to(parameter.device)
        self.epoch = epoch


def load_model(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    prefix = "model."
    model.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
