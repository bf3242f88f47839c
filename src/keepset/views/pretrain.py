"""Self-supervised training from scratch: the trainer owns draws, optimiser, schedule; a method owns projector and loss.

On a GPU the step is compiled and captured once as a CUDA graph; elsewhere the same step runs as it is written. A whole
epoch's draws lie on the device before it begins, and the step itself counts where in the epoch it is, so that an epoch
is nothing but replays.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..embedding import embed
from ..learning import aside
from ..learning.augment import normalise
from ..learning.capture import captured
from ..learning.compiling import compiled
from ..learning.models import make_model
from ..learning.plan import generator_of
from ..learning.resnet import Classifier, initialise
from .augment import Draws, augment, draw
from .cache import digest_of
from .lars import LARS, Rule
from .saving import read_state, write_state
from .settings import Pretraining, resolved_precision

OnEpoch = Callable[[Mapping[str, Any]], object]
SAVE_EVERY = 20.0  # seconds between checkpoints: a kill costs no more than this
REFERENCE_BATCH = 256  # the learning rate is given for this many images a step


@dataclass(frozen=True)
class Method:
    """What tells one way of self-supervised training from another."""

    name: str
    projector: Callable[[int], nn.Module]
    """(features) -> the layers between features and loss."""
    loss: Callable[[Tensor], Tensor]
    """(2b, d) projections, rows i and i + b of one image -> the loss."""


def pretrained(
    images: Tensor,
    settings: Pretraining,
    method: Method,
    *,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Tensor:
    """(n, d) float32 backbone features of `images` by a network trained on them alone, on the images' device.

    With `checkpoint`, training goes on from that file, if it is there, and is saved to it on the way.
    """
    with torch.inference_mode(False):  # whatever the caller is in the middle of
        return _pretrained(Pretrainer(images, settings, method), checkpoint, on_epoch)


def _pretrained(trainer: Pretrainer, checkpoint: Path | None, on_epoch: OnEpoch | None) -> Tensor:
    settings, method = trainer.settings, trainer.method
    if checkpoint is not None:
        trainer.load(checkpoint)
    saved = begin = time.monotonic()
    done = trainer.epoch
    while trainer.epoch < settings.epochs:
        loss = trainer.train_epoch()
        if not math.isfinite(loss):
            raise ValueError(f"{method.name}: the loss is {loss} after epoch {trainer.epoch}; lower its rate")
        now = time.monotonic()
        if checkpoint is not None and now - saved > SAVE_EVERY and trainer.epoch < settings.epochs:
            trainer.save(checkpoint)
            saved = time.monotonic()
        if on_epoch is not None:
            left = (now - begin) / (trainer.epoch - done) * (settings.epochs - trainer.epoch)
            told = {"view": method.name, "epoch": trainer.epoch, "epochs": settings.epochs}
            on_epoch({**told, "loss": loss, "seconds left": left})
    return trainer.features()


class Pretrainer:
    """One training, epoch by epoch, so that it can be saved and taken up between any two."""

    def __init__(self, images: Tensor, settings: Pretraining, method: Method) -> None:
        _check_images(images)
        self.images, self.settings, self.method = images, settings, method
        self._name = f"{method.name} {digest_of(images)} {settings}"
        self.mean, self.std = _statistics(images)
        self.network = _network(images, settings, method)
        rule = Rule(settings.momentum, settings.eta, settings.weight_decay, settings.clip)
        compiling = settings.compile and images.is_cuda
        self.optimiser = LARS(self.network.parameters(), rule, compiling=compiling)
        if compiling:
            aside.set_aside(self.network)
        self._forward = compiled(_loss, compiling, aside=True)
        self.epoch, self.capture = 0, images.is_cuda
        self.batch = min(settings.batch, len(images))
        self.steps = len(images) // self.batch
        # what a step reads and writes: filled in place, since a captured step knows these tensors and no others
        self._plan = {name: drawn.to(images.device) for name, drawn in self._drawn(0).items()}
        self._upcoming: dict[str, Tensor] = {}
        self._place = torch.zeros(1, dtype=torch.int64, device=images.device)
        self._losses = torch.zeros(self.steps, device=images.device)
        self._run: Callable[[], object] = self._step

    # ------------------------------------------------------------ training

    def train_epoch(self) -> float:
        """One pass over the images; the mean loss."""
        self.network.train()
        for name, drawn in (self._upcoming or self._drawn(self.epoch)).items():
            self._plan[name].copy_(drawn)
        with torch.enable_grad():  # whatever the caller is in the middle of
            if self.capture and self._run == self._step:
                self._run = captured(self._step, [*self._moving().values(), self._place], fastest=True)
            self._place.zero_()
            for _ in range(self.steps):
                self._run()
        self.epoch += 1
        self._upcoming = self._drawn(self.epoch)  # on the CPU, while a GPU is busy with the steps
        return float(self._losses.mean())

    def _drawn(self, epoch: int) -> dict[str, Tensor]:
        """All that is random in an epoch, from seeds alone, and its learning rates; (steps, …) each."""
        seed, (count, _, height, width) = (self.settings.seed, self.method.name), self.images.shape
        order = torch.randperm(count, generator=generator_of(*seed, "order", epoch))[: self.steps * self.batch]
        copies = 2 * self.steps * self.batch
        draws = draw(self.settings.augmentation, copies, height, width, generator_of(*seed, "augment", epoch))
        rates = torch.tensor([self.rate(epoch * self.steps + step) for step in range(self.steps)])
        plan = {"rows": order.view(self.steps, -1), "rates": rates}
        plan |= {name: drawn.unflatten(0, (self.steps, -1)) for name, drawn in vars(draws).items()}
        return plan

    def rate(self, step: int) -> float:
        """A straight line up, then half a cosine down to zero. `step` counts from 0 over all epochs."""
        highest = self.settings.rate * self.batch / REFERENCE_BATCH
        warm = min(self.settings.warmup, self.settings.epochs - 1) * self.steps
        if step < warm:
            return highest * (step + 1) / warm
        part = (step - warm) / (self.settings.epochs * self.steps - warm)
        return highest * (1 + math.cos(math.pi * part)) / 2

    def _step(self) -> None:
        """One step, at the place that the last one left: no value comes from outside, and none is read back."""
        plan = {name: tensor.index_select(0, self._place).squeeze(0) for name, tensor in self._plan.items()}
        rows, rate = plan.pop("rows"), plan.pop("rates")
        self.optimiser.zero_grad()
        with self._autocast():
            loss = self._forward(self.network, self.method, self.images[rows], Draws(**plan), self.mean, self.std)
        loss.backward()
        aside.join()
        self.optimiser.step(rate)
        self._losses.index_copy_(0, self._place, loss.detach()[None])
        self._place += 1

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        device, wanted = self.images.device.type, resolved_precision(self.settings, self.images.device)
        if wanted == "float32":
            return contextlib.nullcontext()
        return torch.autocast(device, torch.bfloat16, cache_enabled=False)

    # ------------------------------------------------------------ what comes of it

    def features(self) -> Tensor:
        """(n, d) of the images as they are, in eval mode."""

        def encode(batch: Tensor) -> Tensor:
            return self.network.features(normalise(batch, self.mean, self.std)).float()

        return embed(encode, self.images, model=self.network)

    def _moving(self) -> dict[str, Tensor]:
        """All that changes from step to step, by name."""
        names = [name for name, _ in self.network.named_parameters()]
        momenta = {f"momentum.{name}": tensor for name, tensor in zip(names, self.optimiser.momenta, strict=True)}
        return {f"model.{name}": tensor for name, tensor in self.network.state_dict().items()} | momenta

    def save(self, path: Path) -> None:
        write_state(path, self._moving(), self._name, {"epoch": self.epoch})

    def load(self, path: Path) -> None:
        """Go on from a file that `save` wrote; a damaged one, or that of another training, counts as none."""
        moving = self._moving()
        found = read_state(path, moving, self._name)
        if found is None:
            return
        tensors, about = found
        with torch.no_grad():
            for name, tensor in moving.items():
                tensor.copy_(tensors[name])
        self.epoch, self._upcoming = int(about["epoch"]), {}


def _loss(network: Classifier, method: Method, images: Tensor, draws: Draws, mean: Tensor, std: Tensor) -> Tensor:
    """Two augmented copies of each image, (2b, c, h, w), through the network."""
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        copies = augment(images.repeat(2, 1, 1, 1), draws, mean, std)
    if images.is_cuda:
        copies = copies.contiguous(memory_format=torch.channels_last)
    projections = network(copies)
    with torch.autocast(images.device.type, enabled=False):
        return method.loss(projections.float())


def _network(images: Tensor, settings: Pretraining, method: Method) -> Classifier:
    """The backbone, with the projector in place of a classifier's head."""
    generator = generator_of(settings.seed, method.name, "network")
    network = make_model(settings.model, 1, tuple(images.shape[1:]), settings.width, generator)
    network.head = initialise(method.projector(network.size), generator)
    network.to(images.device)
    if images.is_cuda:  # the layout of the tensor cores
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """(c,) mean and standard deviation of pixel / 255 of these images; a channel of one value counts as spread 1."""
    levels = torch.arange(256, dtype=torch.float64)
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = torch.bincount(images[:, channel].flatten().int(), minlength=256).cpu().double()  # exact on any device
        mean = float((counts * levels).sum() / counts.sum())
        std = math.sqrt(float((counts * (levels - mean) ** 2).sum() / counts.sum()))
        means.append(mean / 255)
        stds.append(std / 255 or 1.0)
    return torch.tensor(means, device=images.device), torch.tensor(stds, device=images.device)


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        found = f"{images.dtype} of shape {tuple(images.shape)}"
        raise ValueError(f"images must be uint8 of shape (n, 1 or 3 channels, height, width), got {found}")
    if len(images) < 2:
        raise ValueError(f"images must hold at least 2, since each is told from the others, got {len(images)}")
