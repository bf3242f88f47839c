"""Train episodes: the trainer owns the draws, the optimiser and the schedule; the learner owns the loss.

A step reads and writes tensors that stay where they are, counts for itself where in the epoch it is, and reads nothing
back. On a CPU it runs as it is written; on a GPU it is captured once as a CUDA graph, which serves all episodes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..checks import check_choice, check_range
from .augment import Draws, augment
from .capture import captured, restorer
from .compiling import compiled
from .finetune import finetune
from .plan import batch_sizes, generator_of, plan_epoch
from .step import Batch, Learner, compiled_descent

STATISTICS = ("batch", "first")


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
    """… each time this part of the epochs is over; 1: never."""
    precision: str = "auto"
    """`float32`, `bfloat16` (autocast), or `auto`: bfloat16 on CUDA, float32 elsewhere."""
    statistics: str = "batch"
    """What batch-norm normalises by in training: each `batch`'s own statistics, or `first`: as in tests by those that
    ran along, which stay those of the first episode from then on, as long as something is replayed."""
    stacked: bool = False
    """Whether steps are taken with those of other runs as one, from the second episode on: faster, other rounding."""

    def __post_init__(self) -> None:
        check_range("epochs", self.epochs, 1, 10**6, "passes over the new images")
        check_range("batch", self.batch, 1, 10**6, "new images a step")
        check_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        check_choice("statistics", self.statistics, STATISTICS)
        for name, least in {"momentum": 0, "weight_decay": 0, "decay": 0, "decay_at": 0.001}.items():
            if not least <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in {least}..1, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Material:
    """All images there are to train on, with what is needed to augment them; runs may share it."""

    images: Tensor
    """(n, c, h, w) uint8"""
    labels: Tensor
    mean: Tensor
    """(c,) of pixel / 255, on the images' device, as is `std`."""
    std: Tensor
    padding: int
    flip: bool


@dataclass(frozen=True)
class Episode:
    """What one episode trains on: rows of the material, on the CPU, the classes seen, and what seeds its draws."""

    new: Tensor
    memory: Tensor
    """What may be replayed; empty in the first episode."""
    seen: Tensor
    seed: tuple[object, ...]


@dataclass(frozen=True)
class Engine:
    """How steps are run on a GPU; on a CPU they run as they are written."""

    capture: bool = True
    """As a CUDA graph."""
    compile: bool = True
    """With the loss compiled."""


class Trainer:
    """Trains one model, episode after episode, epoch by epoch, so that it can be saved and taken up between any two."""

    def __init__(
        self,
        model: nn.Module,
        learner: Learner,
        settings: TrainSettings,
        material: Material,
        engine: Engine | None = None,
    ) -> None:
        self.model, self.learner, self.settings, self.material = model, learner, settings, material
        self.device = material.images.device
        self.engine = engine or Engine()
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream() if on_gpu else None
        if on_gpu:  # the layout of the tensor cores
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._compiling = on_gpu and self.engine.compile
        self._prepared = learner.ready(model, self._compiling)
        self._rate = torch.tensor(learner.rate, device=self.device)
        self.optimiser = torch.optim.SGD(
            model.parameters(),
            lr=self._rate if on_gpu else learner.rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
            fused=True if on_gpu else None,
        )
        self._plan, self._losses = torch.zeros(0, device=self.device), torch.zeros(0, device=self.device)
        self._place = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._seen = torch.zeros(0, dtype=torch.bool, device=self.device)
        self._replay: Callable[[], None] | None = None
        self.epoch = self.steps = self._taken = 0
        self.holding = False
        """Whether the statistics of batch-norm stay as they are."""
        self.sizes: tuple[int, ...] = ()

    # ------------------------------------------------------------ episodes and epochs

    def begin(self, episode: Episode) -> None:
        """A new episode: a fresh optimiser and schedule, and whatever the learner draws once an episode."""
        self.episode, self.epoch = episode, 0
        self.steps = len(episode.new) // self.settings.batch
        """Steps an epoch."""
        sizes = batch_sizes(self.settings.batch, self.learner.draws, len(episode.memory))
        if sizes != self.sizes:
            self.sizes, self._replay = sizes, None
        self.holding = self.settings.statistics == "first" and len(sizes) > 1
        alike = self.learner.shares_first and len(sizes) == 1
        plain = compiled_descent(finetune) if self._compiling else finetune
        self._gradients = plain if alike else self._prepared.gradients
        for weight in self.model.parameters():
            momentum = self.optimiser.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
            momentum.zero_()
        self._prepared.draw(generator_of(*episode.seed, "learner"))
        if len(self._seen) != len(episode.seen):
            self._seen = torch.empty_like(episode.seen, device=self.device)
        self._seen.copy_(episode.seen)

    def rate(self, epoch: int) -> float:
        """× decay each time `decay_at` of the epochs are over: .66 is after 66 of 100, after 7 of 10; .33 after 33, 66
        and 99 of 100. `epoch` counts from 0."""
        times = math.floor(epoch / (self.settings.decay_at * self.settings.epochs) + 1e-9)
        return self.learner.rate * self.settings.decay**times

    def train_epoch(self) -> float:
        """One pass over the new images; the mean loss."""
        self.begin_epoch()
        for _ in range(self.steps):
            self.advance()
        return self.end_epoch()

    def planned(self) -> Tensor:
        """All that is random in the epoch: (steps, 4, batch)."""
        material, episode = self.material, self.episode
        return plan_epoch(
            episode.new, episode.memory, self.sizes, material.padding, material.flip, episode.seed, self.epoch
        ).packed()

    def begin_epoch(self) -> None:
        """Draw all that is random in the epoch, and lay it where the steps will look for it."""
        self._lay(self.planned())
        self._place.zero_()
        self._taken = 0
        rate = self.rate(self.epoch)
        self._rate.fill_(rate)
        if self.device.type != "cuda":
            for group in self.optimiser.param_groups:
                group["lr"] = rate
        self.model.train(not self.holding)
        if self.device.type == "cuda" and self.engine.capture and self._replay is None and self.steps:
            self._replay = captured(self._step, self._moving(), stream=self.stream, fastest=False)

    def advance(self) -> None:
        """One step, the next one of the epoch; nothing once the epoch is over."""
        if self._taken == self.steps:
            return
        self._taken += 1
        with torch.enable_grad():  # whatever the caller is in the middle of
            (self._replay or self._step)()

    def end_epoch(self) -> float:
        """The mean loss of the epoch."""
        self.epoch += 1
        return float(self._losses[: self.steps].mean()) if self.steps else 0.0

    def _lay(self, packed: Tensor) -> None:
        """Into the tensor of the epoch before, if it has the room: a captured step knows no other."""
        if self._plan.shape[1:] != packed.shape[1:] or len(self._plan) < len(packed):
            self._plan, self._losses = packed.to(self.device), torch.zeros(len(packed), device=self.device)
            self._replay = None
        self._plan[: len(packed)].copy_(packed)

    def kept(self) -> Callable[[], None]:
        """What puts everything back as it is now, were steps taken in between: for measuring."""
        restore, taken = restorer(self._moving()), self._taken

        def put_back() -> None:
            restore()
            self._taken = taken

        return put_back

    # ------------------------------------------------------------ one step

    def _step(self) -> None:
        images, labels = compiled(gathered, self._compiling, small=True)(self.material, self._plan, self._place)
        parts = zip(images.split(self.sizes), labels.split(self.sizes), strict=True)
        new, *memory = (Batch(*part) for part in parts)
        self.optimiser.zero_grad(set_to_none=True)
        with autocast(self.settings.precision, self.device):
            loss = self._gradients(self.model, new, memory, self._seen)
        self.optimiser.step()
        self._losses.index_copy_(0, self._place, loss[None].float())
        self._place += 1

    # ------------------------------------------------------------ saving

    def _moving(self) -> list[Tensor]:
        """All that a step changes."""
        return [*self.tensors().values(), self._place]

    def tensors(self) -> dict[str, Tensor]:
        """Model and momentum, by name: all that changes from epoch to epoch."""
        found = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, weight in self.model.named_parameters():
            found[f"momentum.{name}"] = self.optimiser.state[weight]["momentum_buffer"]
        return found

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], epoch: int) -> None:
        """Go on after `epoch` epochs of the episode that was begun."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.epoch = epoch


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """As `TrainSettings.precision` says."""
    if precision == "float32" or (precision == "auto" and device.type != "cuda"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)  # a graph must not keep the casts


def gathered(material: Material, plan: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The images of a step, cropped and flipped as planned, and their labels; plan: (steps, 4, batch)."""
    rows, top, left, flip = plan.index_select(0, place)[0]
    crops = Draws(top, left, flip.bool())
    images = augment(material.images[rows], crops, material.padding, material.mean, material.std)
    if images.is_cuda:  # the layout of the tensor cores
        images = images.contiguous(memory_format=torch.channels_last)
    return images, material.labels[rows]


def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    prefix = "model."
    model.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
