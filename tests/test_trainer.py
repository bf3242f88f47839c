"""The trainer: its epochs against a written-out loop, and the tensors that stay where they are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from keepset.learning import Batch, Learner, learner
from keepset.learning import star as star_module
from keepset.learning.plan import batch_sizes, generator_of, plan_epoch
from keepset.learning.resnet import resnet18, small_net
from keepset.learning.trainer import Episode, Material, Trainer, TrainSettings

CLASSES, PADDING = 4, 2
SETTINGS = TrainSettings(epochs=3, batch=5, momentum=0.8, weight_decay=1e-2, decay=0.5, decay_at=0.5)
LEARNERS = ["finetune", "er", "er-ace", "mir", "er-ace-star"]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


IMAGES = torch.randint(256, (60, 1, 8, 8), dtype=torch.uint8, generator=seeded(0))
MATERIAL = Material(IMAGES, torch.arange(60) % CLASSES, torch.tensor([0.4]), torch.tensor([0.3]), PADDING, flip=True)


def rows_of(classes: Sequence[int], count: int) -> Tensor:
    return torch.tensor([row for row in range(60) if row % CLASSES in classes][:count])


def episode(number: int, count: int = 23, held: int = 12) -> Episode:
    """The first has classes 0 and 1 and no memory, those after it 2 and 3."""
    if number == 0:
        return Episode(rows_of([0, 1], count), rows_of([], 0), torch.tensor([1, 1, 0, 0]).bool(), (7, "episode", 0))
    return Episode(rows_of([2, 3], count), rows_of([0, 1], held), torch.ones(CLASSES).bool(), (7, "episode", number))


def make_trainer(name: str = "er-ace", seed: int = 0, model: nn.Module | None = None) -> Trainer:
    return Trainer(model or small_net(CLASSES, generator=seed), learner(name), SETTINGS, MATERIAL)


def begun(trainer: Trainer, number: int = 0) -> Trainer:
    trainer.begin(episode(number))
    return trainer


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.tensors().items()}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# ---------------------------------------------------------------- a written-out loop


def slow_batch(rows: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Batch:
    """Image by image: padded with black, cut out, mirrored, normalised."""
    images = []
    for place, row in enumerate(rows.tolist()):
        padded = functional.pad(IMAGES[row], [PADDING] * 4)
        image = padded[:, int(top[place]) :][:, :8, int(left[place]) :][:, :, :8]
        images.append(image.flip(2) if flip[place] else image)
    return Batch((torch.stack(images).float() / 255 - 0.4) / 0.3, MATERIAL.labels[rows])


def slow_episode(model: nn.Module, name: str, given: Episode) -> list[float]:
    """The mean losses of the epochs."""
    chosen = learner(name)
    gradients = chosen.prepare(model, generator_of(*given.seed, "learner"))
    optimiser = torch.optim.SGD(model.parameters(), chosen.rate, 0.8, weight_decay=1e-2, nesterov=True)
    sizes = batch_sizes(5, chosen.draws, len(given.memory))
    losses = []
    for epoch in range(3):
        optimiser.param_groups[0]["lr"] = chosen.rate * (0.5 if epoch == 2 else 1)
        plan = plan_epoch(given.new, given.memory, sizes, PADDING, True, given.seed, epoch)
        found = []
        for step in range(len(plan)):
            crops = (plan.rows, plan.crops.top, plan.crops.left, plan.crops.flip)
            parts = zip(*(part[step].split(sizes) for part in crops), strict=True)
            new, *memory = (slow_batch(*part) for part in parts)
            optimiser.zero_grad()
            found.append(gradients(model, new, memory, given.seen))
            optimiser.step()
        losses.append(float(torch.stack(found).mean()))
    return losses


@pytest.mark.parametrize("name", LEARNERS)
def test_train_epoch__as_a_written_out_loop(name: str) -> None:
    trainer, model = make_trainer(name), small_net(CLASSES, generator=0)
    for number in (0, 1, 2):
        trainer.begin(episode(number))
        losses = [trainer.train_epoch() for _ in range(SETTINGS.epochs)]
        assert losses == slow_episode(model, name, episode(number))
    assert same(dict(trainer.model.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("name", ["er", "er-ace", "mir", "er-ace-star"])
def test_train_epoch__statistics_of_the_first_episode_are_held_from_then_on(name: str) -> None:
    """As a written-out loop whose network is in eval mode, but for the first episode."""
    settings, model = replace(SETTINGS, statistics="first"), small_net(CLASSES, generator=0)
    trainer = Trainer(small_net(CLASSES, generator=0), learner(name), settings, MATERIAL)
    moved = []
    for number in (0, 1, 2):
        trainer.begin(episode(number))
        before = weights(trainer)
        losses = [trainer.train_epoch() for _ in range(SETTINGS.epochs)]
        assert losses == slow_episode(model.train(number == 0), name, episode(number))
        moved.append({key for key, tensor in weights(trainer).items() if not torch.equal(tensor, before[key])})
    assert same(dict(trainer.model.state_dict()), dict(model.state_dict()))
    statistics = {f"model.{key}" for key, _ in model.named_buffers()}
    assert statistics <= moved[0]
    assert not statistics & (moved[1] | moved[2])
    assert {f"model.{key}" for key, _ in model.named_parameters()} <= moved[2]


@pytest.mark.parametrize(("epochs", "part", "every"), [(100, 0.66, 66), (100, 0.33, 33), (10, 0.66, 7), (9, 1 / 3, 3)])
def test_rate__as_of_torch(epochs: int, part: float, every: int) -> None:
    settings = replace(SETTINGS, epochs=epochs, decay=0.3, decay_at=part)
    trainer = Trainer(small_net(CLASSES, generator=0), learner("er-ace"), settings, MATERIAL)
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=trainer.learner.rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, every, 0.3)
    for epoch in range(epochs):
        assert trainer.rate(epoch) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12), epoch
        optimiser.step()
        schedule.step()


def test_rate__that_never_decays_and_one_that_cannot() -> None:
    trainer = Trainer(small_net(CLASSES, generator=0), learner("er"), replace(SETTINGS, decay_at=1), MATERIAL)
    assert {trainer.rate(epoch) for epoch in range(SETTINGS.epochs)} == {trainer.learner.rate}
    with pytest.raises(ValueError, match=r"decay_at must be in 0\.001\.\.1, got 0"):
        replace(SETTINGS, decay_at=0)


def test_train_epoch__a_resnet_of_coloured_images() -> None:
    material = Material(IMAGES.expand(-1, 3, -1, -1), MATERIAL.labels, torch.rand(3), torch.ones(3), 1, flip=False)
    trainer = Trainer(resnet18(CLASSES, 4, 3, generator=0), learner("er-ace"), SETTINGS, material)
    trainer.begin(episode(1))
    losses = [trainer.train_epoch() for _ in range(2)]
    assert losses[1] < losses[0]


def test_train_epoch__without_momentum_is_plain_descent() -> None:
    settings = TrainSettings(epochs=1, batch=23, momentum=0, weight_decay=0, decay_at=1)
    trainer = Trainer(small_net(CLASSES, generator=0), learner("finetune"), settings, MATERIAL)
    before = weights(begun(trainer))
    trainer.train_epoch()
    for name, weight in trainer.model.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(weight.detach(), before[f"model.{name}"] - 0.1 * weight.grad)


def test_train_epoch__fewer_images_than_a_batch_are_no_steps() -> None:
    trainer = make_trainer()
    trainer.begin(episode(0, count=4))
    before = weights(trainer)
    assert trainer.train_epoch() == 0
    assert (trainer.steps, trainer.epoch) == (0, 1)
    assert same(weights(trainer), before)


def test_train_epoch__inside_no_grad_trains_all_the_same() -> None:
    trainers = [make_trainer("er-ace-star") for _ in range(2)]
    losses = []
    for trainer, enabled in zip(trainers, (True, False), strict=True):
        with torch.set_grad_enabled(enabled):
            for number in (0, 1):
                trainer.begin(episode(number))
                losses.append(trainer.train_epoch())
    assert losses[:2] == losses[2:]
    assert same(weights(trainers[0]), weights(trainers[1]))


# ---------------------------------------------------------------- the plan


def test_packed__row_top_left_and_flip_of_the_plan() -> None:
    given = episode(1)
    plan = plan_epoch(given.new, given.memory, (5, 4, 3), PADDING, True, given.seed, 2)
    packed = plan.packed()
    assert packed.shape == (4, 4, 12)
    assert packed.dtype == torch.int64
    expected = (plan.rows, plan.crops.top, plan.crops.left, plan.crops.flip)
    assert all(torch.equal(packed[:, place], part.long()) for place, part in enumerate(expected))
    assert packed[:, 3].unique().tolist() == [0, 1]


def test_begin_epoch__lays_the_plan_of_its_epoch() -> None:
    trainer, given = begun(make_trainer("mir"), 1), episode(1)
    for epoch in range(2):
        trainer.begin_epoch()
        plan = plan_epoch(given.new, given.memory, (5, 12), PADDING, True, given.seed, epoch)
        assert torch.equal(trainer._plan[: trainer.steps], plan.packed())
        for _ in range(trainer.steps):
            trainer.advance()
        trainer.end_epoch()


def plans(trainer: Trainer, epochs: int = 2) -> list[Tensor]:
    """As the epochs come."""
    found = []
    for _ in range(epochs):
        trainer.train_epoch()
        found.append(trainer._plan[: trainer.steps].clone())
    return found


def test_plans__come_from_seed_episode_and_epoch_alone() -> None:
    expected = plans(begun(make_trainer(), 1))
    first, second = begun(make_trainer(), 1), begun(make_trainer(seed=1), 2)
    between: list[Tensor] = []
    for place in range(2):
        torch.manual_seed(place)
        torch.rand(100)
        assert torch.equal(plans(first, 1)[0], expected[place]), "whatever else was drawn"
        between += plans(second, 1)
    assert not torch.equal(between[0], expected[0]), "another episode has draws of its own"
    assert not torch.equal(expected[0], expected[1]), "and so has another epoch"
    resumed = begun(make_trainer(), 1)
    resumed.restore(weights(first), 1)
    assert torch.equal(plans(resumed, 1)[0], expected[1])


def test_train_epoch__drawing_elsewhere_in_between_changes_no_bit() -> None:
    quiet, disturbed = (begun(make_trainer("er-ace-star"), 1) for _ in range(2))
    quiet.train_epoch()
    disturbed.begin_epoch()
    state = torch.get_rng_state()
    for _ in range(disturbed.steps):
        torch.manual_seed(3)
        torch.rand(5)
        before = torch.get_rng_state()
        disturbed.advance()
        assert torch.equal(torch.get_rng_state(), before), "a step draws nothing"
    disturbed.end_epoch()
    torch.set_rng_state(state)
    assert same(weights(quiet), weights(disturbed))


# ---------------------------------------------------------------- tensors that stay where they are


def places(trainer: Trainer) -> dict[str, int]:
    tensors = {**trainer.tensors(), "plan": trainer._plan, "seen": trainer._seen, "place": trainer._place}
    return {name: tensor.data_ptr() for name, tensor in {**tensors, "losses": trainer._losses}.items()}


@pytest.mark.parametrize("counts", [(23, 23), (23, 14)], ids=["as-long", "shorter"])
def test_begin__a_new_episode_uses_the_same_tensors(counts: tuple[int, int]) -> None:
    trainer = make_trainer()
    trainer.begin(episode(1, counts[0]))
    trainer.train_epoch()
    before = places(trainer)
    trainer.begin(episode(2, counts[1]))
    trainer.train_epoch()
    assert places(trainer) == before


def test_begin__seen_follows_the_episode() -> None:
    trainer = make_trainer()
    for number in (0, 1):
        trainer.begin(episode(number))
        assert torch.equal(trainer._seen, episode(number).seen)


def test_begin__leaves_the_mask_of_an_earlier_episode_alone() -> None:
    trainer, first = make_trainer(), episode(0)
    trainer.begin(first)
    trainer.begin(episode(1))
    assert first.seen.tolist() == [True, True, False, False]


def test_begin__momenta_are_zero_again() -> None:
    trainer = begun(make_trainer(), 0)
    trainer.train_epoch()
    moving = {name: tensor for name, tensor in trainer.tensors().items() if name.startswith("momentum.")}
    assert all(tensor.ne(0).any() for tensor in moving.values())
    trainer.begin(episode(1))
    assert all(tensor.eq(0).all() for tensor in moving.values())
    assert trainer.epoch == 0


def test_begin__the_noise_of_star_is_drawn_anew_into_the_same_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[dict[str, int], dict[str, Tensor]]] = []
    written = star_module.star_gradients

    def spy(model: nn.Module, batch: Batch, seen: Tensor, noise: dict[str, Tensor], *more: Any) -> Any:
        copies = {name: tensor.clone() for name, tensor in noise.items()}
        calls.append(({name: id(tensor) for name, tensor in noise.items()}, copies))
        return written(model, batch, seen, noise, *more)

    monkeypatch.setattr("keepset.learning.star.star_gradients", spy)
    trainer = make_trainer("er-ace-star")
    for number in (1, 2):
        trainer.begin(episode(number))
        trainer.train_epoch()
    first, last_of_first, second = calls[0], calls[trainer.steps - 1], calls[-1]
    assert first[0] == second[0]
    assert same(first[1], last_of_first[1]), "within an episode they stay"
    assert not any(torch.equal(first[1][name], second[1][name]) for name in first[1])
    drawn = star_module.random_directions(trainer.model, 0, generator_of(*episode(2).seed, "learner"))
    assert same(second[1], drawn)


@pytest.mark.parametrize("name", ["er-ace", "mir"])
def test_train_epoch__a_shorter_epoch_after_a_longer_one(name: str) -> None:
    """What is left of the longer plan and its losses must not be seen."""
    used, fresh = make_trainer(name), make_trainer(name)
    used.begin(episode(1, 28))
    used.train_epoch()
    for trainer in (used, fresh):
        trainer.begin(episode(2, 14))
        trainer.restore(weights(used) if trainer is fresh else trainer.tensors(), 0)
    assert used.steps == 2
    assert used.train_epoch() == fresh.train_epoch()
    assert same(weights(used), weights(fresh))


def test_train_epoch__a_longer_epoch_and_a_smaller_memory_get_room() -> None:
    used, fresh = make_trainer("mir"), make_trainer("mir")
    used.begin(episode(1, 14, held=12))
    used.train_epoch()
    for given in (episode(2, 28, held=12), episode(2, 28, held=7), episode(0)):
        for trainer in (used, fresh):
            trainer.begin(given)
            trainer.restore(weights(used), 0)
        assert used.train_epoch() == fresh.train_epoch()
        assert same(weights(used), weights(fresh))


# ---------------------------------------------------------------- places


def test_advance__once_the_epoch_is_over_nothing_moves() -> None:
    trainer = begun(make_trainer(), 1)
    trainer.begin_epoch()
    for _ in range(trainer.steps):
        trainer.advance()
    before = weights(trainer)
    trainer.advance()
    assert int(trainer._place) == trainer.steps
    assert same(weights(trainer), before)


def test_end_epoch__is_the_mean_of_this_epochs_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Tensor] = []

    def counting(model: nn.Module, new: Batch, memory: Sequence[Batch], seen: Tensor) -> Tensor:
        model(new.images).sum().backward()
        told.append(torch.tensor(float(len(told))))
        return told[-1]

    trainer = Trainer(small_net(CLASSES, generator=0), Learner("mine", counting, (), 1e-3), SETTINGS, MATERIAL)
    trainer.begin(episode(0))
    assert [trainer.train_epoch() for _ in range(2)] == [1.5, 5.5]
    trainer.begin(episode(0, 12))
    assert trainer.train_epoch() == 8.5


@pytest.mark.parametrize("taken", [0, 2])
def test_kept__puts_everything_back(taken: int) -> None:
    """Steps that were only measured must not show, wherever in the epoch they began."""
    measured, plain = (begun(make_trainer("er-ace-star"), 1) for _ in range(2))
    plain_loss = plain.train_epoch()
    measured.begin_epoch()
    for _ in range(taken):
        measured.advance()
    before, put_back = weights(measured), measured.kept()
    for _ in range(measured.steps):
        measured.advance()
    assert not same(weights(measured), before)
    put_back()
    assert same(weights(measured), before)
    assert int(measured._place) == measured._taken == taken
    for _ in range(measured.steps - taken):
        measured.advance()
    assert measured.end_epoch() == plain_loss
    assert same(weights(measured), weights(plain))


@pytest.mark.parametrize("name", ["er", "er-ace-star"])
def test_restore__in_the_middle_of_an_episode_gives_the_same_bits(name: str) -> None:
    whole = make_trainer(name)
    for number in (0, 1):
        whole.begin(episode(number))
        whole.train_epoch()
    saved, losses = weights(whole), [whole.train_epoch() for _ in range(2)]
    resumed = make_trainer(name, seed=5)
    resumed.begin(episode(1))
    resumed.restore(saved, 1)
    assert [resumed.train_epoch() for _ in range(2)] == losses
    assert resumed.epoch == 3
    assert same(weights(resumed), weights(whole))


def test_tensors__hold_all_that_a_step_changes() -> None:
    trainer = begun(make_trainer(), 1)
    names = {name for name, _ in trainer.model.named_parameters()}
    buffers = {name for name, _ in trainer.model.named_buffers()}
    assert trainer.tensors().keys() == {f"model.{name}" for name in names | buffers} | {f"momentum.{n}" for n in names}
    before = weights(trainer)
    trainer.train_epoch()
    assert not any(torch.equal(tensor, before[name]) for name, tensor in trainer.tensors().items())
