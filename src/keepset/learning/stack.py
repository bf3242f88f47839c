"""Runs stacked: the steps of up to eight runs as one, each layer of all of them in one kernel.

A stack always has eight places, and what lies in the others does not change a run's numbers: a run gives the same bits
in any company, and in any place. But they are other bits than those of a run whose steps are its own.
"""

from __future__ import annotations

import copy
import importlib.util
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from . import stacked
from .capture import captured
from .compiling import compiled
from .resnet import ResNet18
from .step import Batch, Descent, Learner
from .trainer import Trainer, autocast, gathered

PLACES = 8
SIDE = 8  # the ResNet halves maps three times


def check_stackable(learner: Learner, model: nn.Module, side: int, batch: int, device: str) -> None:
    """Refuse what cannot be stacked; side: of the images, in pixels."""
    remedy = "leave out train.stacked"
    if not learner.stackable or not isinstance(learner.gradients, Descent) or len(learner.draws) != 1:
        raise ValueError(f"train.stacked is for the learners er and er-ace, got {learner.name}; {remedy}")
    if learner.draws[0] != batch:
        draws = f"{batch} and {learner.draws[0]}"
        raise ValueError(f"train.stacked needs as many new images a step as replayed ones, got {draws}; {remedy}")
    if not isinstance(model, ResNet18):
        raise ValueError(f"train.stacked is for the ResNet, got the net {type(model).__name__}; {remedy}")
    if side % SIDE:
        raise ValueError(f"train.stacked needs images of a multiple of {SIDE} pixels a side, got {side}; {remedy}")
    width = model.size // 8
    if device == "cuda" and width % stacked.CHANNELS:
        raise ValueError(f"train.stacked needs a width of a multiple of {stacked.CHANNELS}, got {width}; {remedy}")
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        raise ValueError(f"train.stacked needs Triton on a GPU; install it, or {remedy}")


class Stacks:
    """The stacks of a fleet: made when they are first wanted, and kept for its epochs."""

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, int], Stack] = {}

    def split(self, trainers: Sequence[Trainer]) -> tuple[list[Group], list[Trainer]]:
        """Trainers that are stacked in their next epoch, in groups that share one, and those that go by themselves."""
        alone, alike = list[Trainer](), dict[tuple[Hashable, int], list[Trainer]]()
        for trainer in trainers:
            if trainer.settings.stacked and len(trainer.sizes) > 1:
                alike.setdefault((_kind(trainer), trainer.steps), []).append(trainer)
            else:
                alone.append(trainer)
        groups, counts = list[Group](), Counter[Hashable]()
        for (kind, _), same in alike.items():
            for first in range(0, len(same), PLACES):
                groups.append(Group(self, (kind, counts[kind]), same[first : first + PLACES]))
                counts[kind] += 1
        return groups, alone

    def get(self, key: tuple[Hashable, int], like: Trainer) -> Stack:
        if key not in self._made:
            self._made[key] = Stack(like)
        return self._made[key]

    def keep(self, trainers: Iterable[Trainer]) -> None:
        """Let go of the stacks that none of these trainers could be in."""
        kinds = {_kind(trainer) for trainer in trainers if trainer.settings.stacked}
        self._made = {key: stack for key, stack in self._made.items() if key[0] in kinds}

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Group:
    """Trainers that share a stack for an epoch."""

    stacks: Stacks
    key: tuple[Hashable, int]
    trainers: Sequence[Trainer]

    def stack(self) -> Stack:
        return self.stacks.get(self.key, self.trainers[0])


def _kind(trainer: Trainer) -> Hashable:
    """What the runs of a stack have in common; each has a rate of its own."""
    shapes = tuple(weight.shape for weight in trainer.model.parameters())
    settings = trainer.settings
    same = settings.batch, settings.momentum, settings.weight_decay, settings.precision, settings.statistics
    return replace(trainer.learner, rate=0.0), id(trainer.material), shapes, same, trainer.engine


class Stack:
    """Eight places for runs like `like`. What is in them is copied in before an epoch, and out after it."""

    def __init__(self, like: Trainer) -> None:
        self.material, self.settings, self.sizes = like.material, like.settings, like.sizes
        self.engine, self.device = like.engine, like.device
        self.steps = 0
        self._compiling = self.device.type == "cuda" and self.engine.compile
        self.stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        self.network = network_of(like.model)
        self.network.train(not like.holding)
        if not isinstance(like.learner.gradients, Descent):
            raise ValueError(f"only the gradients of a loss can be stacked, got those of {like.learner.name}")
        self._loss = compiled(like.learner.gradients.loss, self._compiling)
        self._plan, self._losses = torch.zeros(0, device=self.device), torch.zeros(0, device=self.device)
        self._place = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._seen = torch.ones(PLACES, len(like.episode.seen), dtype=torch.bool, device=self.device)
        self._weights = [[weight.detach()[place] for weight in self.network.parameters()] for place in range(PLACES)]
        self.optimiser = self._optimiser()
        self._replay: Callable[[], None] | None = None
        self.trainers: Sequence[Trainer] = ()
        self._taken = 0

    def _optimiser(self) -> torch.optim.SGD:
        """A group for each place: runs may be at different rates."""
        on_gpu = self.device.type == "cuda"
        groups = [
            {"params": weights, "lr": torch.zeros((), device=self.device) if on_gpu else 0.0}
            for weights in self._weights
        ]
        optimiser = torch.optim.SGD(
            groups,
            lr=groups[0]["lr"],  # type: ignore[arg-type]
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
            nesterov=self.settings.momentum > 0,
            fused=True if on_gpu else None,
        )
        for weights in self._weights:
            for weight in weights:
                optimiser.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        return optimiser

    # ------------------------------------------------------------ an epoch

    @torch.no_grad()
    def begin_epoch(self, trainers: Sequence[Trainer]) -> None:
        """Take the runs in, with all that is random in their epochs."""
        self.trainers, self.steps, self._taken = trainers, trainers[0].steps, 0
        width = sum(self.sizes)
        plan = torch.zeros(self.steps, 4, PLACES * width, dtype=torch.int64)
        for place, trainer in enumerate(trainers):
            plan[:, :, place * width : (place + 1) * width] = trainer.planned()
            self._seen[place].copy_(trainer.episode.seen)
            _copy(trainer.tensors(), self._tensors(place))
        self._lay(plan)
        self._place.zero_()
        for place in range(PLACES):
            self._set_rate(place, trainers[place].rate(trainers[place].epoch) if place < len(trainers) else 0.0)
        if self.stream is not None and self.engine.capture and self._replay is None and self.steps:
            moving = [tensor for place in range(PLACES) for tensor in self._tensors(place).values()]
            with torch.enable_grad():
                self._replay = captured(self._step, [*moving, self._place], stream=self.stream, fastest=False)

    def advance(self) -> None:
        """One step of every run."""
        if self._taken == self.steps:
            return
        self._taken += 1
        with torch.enable_grad():
            (self._replay or self._step)()

    @torch.no_grad()
    def end_epoch(self) -> list[float]:
        """Give the runs back; the mean loss of each."""
        for place, trainer in enumerate(self.trainers):
            _copy(self._tensors(place), trainer.tensors())
            trainer.epoch += 1
        means = self._losses[: self.steps].mean(0).tolist() if self.steps else [0.0] * PLACES
        found = means[: len(self.trainers)]
        self.leave()
        return found

    def leave(self) -> None:
        """Forget the runs: their memory may be wanted."""
        self.trainers = ()

    def _lay(self, plan: Tensor) -> None:
        """Into the tensor of the epoch before, if it has the room: a captured step knows no other."""
        if len(self._plan) < len(plan):
            self._plan, self._losses = plan.to(self.device), torch.zeros(len(plan), PLACES, device=self.device)
            self._replay = None
        self._plan[: len(plan)].copy_(plan)

    def _set_rate(self, place: int, rate: float) -> None:
        group = self.optimiser.param_groups[place]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

    def _tensors(self, place: int) -> dict[str, Tensor]:
        """What a trainer calls its `tensors`, of the run in that place."""
        found = {f"model.{name}": tensor[place] for name, tensor in self.network.state_dict().items()}
        names = [name for name, _ in self.network.named_parameters()]
        for name, weight in zip(names, self._weights[place], strict=True):
            found[f"momentum.{name}"] = self.optimiser.state[weight]["momentum_buffer"]
        return found

    # ------------------------------------------------------------ one step

    def _step(self) -> None:
        images, labels = compiled(gathered, self._compiling)(self.material, self._plan, self._place)
        images, labels = (each.unflatten(0, (PLACES, -1)) for each in (images, labels))
        parts = zip(images.split(self.sizes, 1), labels.split(self.sizes, 1), strict=True)
        new, *memory = (Batch(*part) for part in parts)
        self.network.zero_grad(set_to_none=True)
        with autocast(self.settings.precision, self.device):
            losses = self._loss(self.network, new, memory, self._seen)
        losses.sum().backward()
        for place, weights in enumerate(self._weights):
            for whole, weight in zip(self.network.parameters(), weights, strict=True):
                weight.grad = None if whole.grad is None else whole.grad[place]
        self.optimiser.step()
        self._losses.index_copy_(0, self._place, losses.detach()[None].float())
        self._place += 1


def network_of(model: nn.Module) -> nn.Module:
    """The same network with weights and statistics of eight runs, each as in `model`."""
    network = copy.deepcopy(model)
    for layer in network.modules():
        for name, weight in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, nn.Parameter(_repeated(weight)))
        for name, statistic in list(layer.named_buffers(recurse=False)):
            setattr(layer, name, _repeated(statistic))
    return network


def _repeated(tensor: Tensor) -> Tensor:
    """(eight, …), in memory of its own; weights of convolutions lie channels last."""
    last = tensor.detach().permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor.detach()
    whole = last.expand(PLACES, *last.shape).contiguous()
    return whole.permute(0, 1, 4, 2, 3) if tensor.ndim == 4 else whole


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    torch._foreach_copy_([target[name] for name in source], list(source.values()))
