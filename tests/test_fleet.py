"""Runs side by side: each as it is alone, one that fails alone, and measurements that leave no trace."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from keepset.learning import Batch, Learner, fleet, learner
from keepset.learning.er import er
from keepset.learning.resnet import small_net
from keepset.learning.step import Gradients
from keepset.learning.trainer import Episode, Material, Trainer, TrainSettings

CLASSES = 4
SETTINGS = TrainSettings(epochs=3, batch=5)
SOURCE = torch.Generator().manual_seed(0)
IMAGES = torch.randint(256, (80, 1, 8, 8), dtype=torch.uint8, generator=SOURCE)
MATERIAL = Material(IMAGES, torch.arange(80) % CLASSES, torch.tensor([0.4]), torch.tensor([0.3]), 1, flip=False)


def make_trainer(chosen: str | Learner, seed: int = 0, count: int = 20) -> Trainer:
    """In its second episode."""
    made = learner(chosen) if isinstance(chosen, str) else chosen
    trainer = Trainer(small_net(CLASSES, generator=seed), made, SETTINGS, MATERIAL)
    trainer.begin(Episode(torch.arange(20, 20 + count), torch.arange(12), torch.ones(CLASSES).bool(), (seed, 1)))
    return trainer


KINDS = [("er-ace", 0, 20), ("er-ace", 1, 35), ("mir", 0, 5), ("er-ace-star", 2, 27)]


def make_trainers() -> list[Trainer]:
    return [make_trainer(*kind) for kind in KINDS]


def state(trainer: Trainer) -> list[Tensor]:
    """Weights, statistics, momenta and the place in the epoch."""
    return [tensor.clone() for tensor in trainer._moving()]


def same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def fails_at(step: int, error: Exception) -> Learner:
    """ER, until its step of that number."""
    count = 0

    def gradients(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
        nonlocal count
        count += 1
        if count > step:
            raise error
        return er(model, new, memory, seen)

    made: Gradients = gradients
    return Learner("failing", made, (10,), 0.01)


# ---------------------------------------------------------------- epochs


def test_train_epoch__each_as_alone_whatever_its_number_of_steps() -> None:
    together, alone = make_trainers(), make_trainers()
    assert [trainer.steps for trainer in together] == [4, 7, 1, 5]
    for _ in range(2):
        assert fleet.train_epoch(together) == [trainer.train_epoch() for trainer in alone]
    for first, second in zip(together, alone, strict=True):
        assert same(state(first), state(second))
        assert first.epoch == second.epoch == 2


def test_train_epoch__in_lockstep(monkeypatch: pytest.MonkeyPatch) -> None:
    trainers, order = make_trainers(), list[int]()
    step = Trainer._step

    def noted(trainer: Trainer) -> None:
        order.append(trainers.index(trainer))
        step(trainer)

    monkeypatch.setattr(Trainer, "_step", noted)
    fleet.train_epoch(trainers)
    assert order == [0, 1, 2, 3, 0, 1, 3, 0, 1, 3, 0, 1, 3, 1, 3, 1, 1]


def test_train_epoch__none_is_no_work() -> None:
    assert fleet.train_epoch([]) == []


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", [RuntimeError, torch.cuda.OutOfMemoryError, ValueError])
def test_train_epoch__one_that_fails_harms_no_other(kind: type[Exception], place: int, step: int) -> None:
    error = kind("out of memory")
    good, alone = ([make_trainer("er-ace", seed) for seed in (0, 1)] for _ in range(2))
    together = [*good[:place], make_trainer(fails_at(step, error)), *good[place:]]
    for epoch in range(2):
        outcomes = fleet.train_epoch(together)
        assert outcomes.pop(place) is error, epoch
        assert outcomes == [trainer.train_epoch() for trainer in alone]
    assert all(same(state(first), state(second)) for first, second in zip(good, alone, strict=True))


def test_train_epoch__one_that_cannot_even_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, good, alone = make_trainer("er"), make_trainer("er-ace"), make_trainer("er-ace")
    error = RuntimeError("no room for its graph")

    def refuse() -> None:
        raise error

    monkeypatch.setattr(broken, "begin_epoch", refuse)
    before = state(broken)
    assert fleet.train_epoch([broken, good]) == [error, alone.train_epoch()]
    assert same(state(broken), before)


def test_train_epoch__a_loss_that_is_no_number_is_told_and_not_caught() -> None:
    """Whether it is a failure is for the run to say."""
    broken, good, alone = make_trainer("er"), make_trainer("er-ace"), make_trainer("er-ace")
    with torch.no_grad():
        next(broken.model.parameters()).fill_(math.nan)
    first, second = fleet.train_epoch([broken, good])
    assert isinstance(first, float)
    assert math.isnan(first)
    assert second == alone.train_epoch()


def test_train_epoch__a_break_by_the_user_goes_through() -> None:
    def broken(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.train_epoch([make_trainer(Learner("broken", broken, (), 0.1)), make_trainer("er")])


# ---------------------------------------------------------------- how many


def test_room_for__one_on_a_cpu_which_is_left_as_it_was() -> None:
    trainer = make_trainer("er")
    before = state(trainer)
    assert fleet.room_for(trainer) == 1
    assert same(state(trainer), before)


def begun(trainers: Sequence[Trainer], taken: int = 0) -> list[Trainer]:
    for trainer in trainers:
        fleet.begin(trainer)
        for _ in range(taken):
            trainer.advance()
    return list(trainers)


@pytest.mark.parametrize("taken", [0, 2])
def test_run_steps_a_second__leaves_all_as_they_were(taken: int) -> None:
    kinds = [kind for kind in KINDS if kind[2] > 10]
    trainers, alone = (begun([make_trainer(*kind) for kind in kinds], taken) for _ in range(2))
    before = [state(trainer) for trainer in trainers]
    assert 0 < fleet.run_steps_a_second(trainers, 2) < math.inf
    assert all(same(state(trainer), kept) for trainer, kept in zip(trainers, before, strict=True))
    for trainer in (*trainers, *alone):
        assert int(trainer._place) == taken
        for _ in range(trainer.steps - taken):
            trainer.advance()
    assert [trainer.end_epoch() for trainer in trainers] == [trainer.end_epoch() for trainer in alone]


def test_run_steps_a_second__counts_the_steps_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of one tick a second: 3 runs of 4 steps each in one second are 12 a second."""
    clock = iter(range(100))
    monkeypatch.setattr("keepset.learning.fleet.time.perf_counter", lambda: float(next(clock)))
    trainers = begun([make_trainer("er", seed, count) for seed, count in ((0, 20), (1, 35), (2, 27))])
    assert fleet.run_steps_a_second(trainers, 30) == 12.0, "no more steps than the shortest epoch has"
    assert fleet.run_steps_a_second(trainers, 3) == 9.0


def test_best_number__leaves_all_as_they_were_and_is_one_that_was_tried() -> None:
    trainers, alone = begun(make_trainers()), make_trainers()
    before = [state(trainer) for trainer in trainers]
    assert fleet.best_number(trainers) in (1, 2, 4)
    assert all(same(state(trainer), kept) for trainer, kept in zip(trainers, before, strict=True))
    assert fleet.train_epoch(trainers) == [trainer.train_epoch() for trainer in alone]


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ({1: 100, 2: 150, 4: 180, 8: 200}, 8),
        ({1: 100, 2: 150, 4: 180, 8: 183}, 4),  # by a sixtieth: not worth its memory
        ({1: 100, 2: 90, 4: 180, 8: 100}, 4),  # a dip does not end the search
        ({1: 100, 2: 99, 4: 102, 8: 101}, 1),
        ({1: 0, 2: 0, 4: 0, 8: 0}, 1),
    ],
)
def test_best_number__the_fastest_by_more_than_a_thirtieth(
    rates: dict[int, float], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "run_steps_a_second", lambda trainers, _steps: rates[len(trainers)])
    assert fleet.best_number([make_trainer("er")] * 11) == best


def test_best_number__of_one_is_one() -> None:
    assert fleet.best_number(begun([make_trainer("er")])) == 1
