"""Runs stacked: each with the numbers it would have by itself but for rounding, and the same bits in any company."""

import functools
import gc
import importlib
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from keepset.experiment.config import RunConfig, make_config
from keepset.experiment.grid import Grid, Planned
from keepset.experiment.identity import run_hash
from keepset.experiment.run import run
from keepset.experiment.shared import first_key
from keepset.experiment.side_by_side import Failure, run_all
from keepset.experiment.stacking import stacked_where_possible
from keepset.learning import LearnerSettings, fleet, learner, stacked
from keepset.learning import stack as stack_module
from keepset.learning import trainer as trainer_module
from keepset.learning.resnet import resnet18, small_net
from keepset.learning.stack import PLACES, Stacks, check_stackable
from keepset.learning.trainer import Episode, Material, Trainer, TrainSettings

CLASSES, WIDTH = 6, 4
SOURCE = torch.Generator().manual_seed(0)
IMAGES = torch.randint(256, (120, 3, 16, 16), dtype=torch.uint8, generator=SOURCE)
MATERIAL = Material(IMAGES, torch.arange(120) % CLASSES, torch.full((3,), 0.5), torch.full((3,), 0.3), 2, flip=True)


def make_trainer(
    seed: int,
    name: str = "er-ace",
    *,
    stacked: bool = True,
    steps: int = 1,
    double: bool = False,
    width: int = WIDTH,
    statistics: str = "batch",
    rate: float | None = None,
) -> Trainer:
    """In its second episode; odd seeds have seen a class less."""
    model = resnet18(CLASSES, width, generator=seed)
    model(torch.rand(9, 3, 16, 16, generator=torch.Generator().manual_seed(seed)))  # moves the statistics
    settings = TrainSettings(epochs=3, batch=10, stacked=stacked, statistics=statistics)
    chosen = learner(name, LearnerSettings(rate=rate))
    trainer = Trainer(model.double() if double else model, chosen, settings, MATERIAL)
    rows = torch.arange(120)[torch.arange(120) % CLASSES < CLASSES - seed % 2]
    seen = torch.arange(CLASSES) < CLASSES - seed % 2
    trainer.begin(Episode(rows[40 : 40 + 10 * steps], rows[:20], seen, (seed, 1)))
    return trainer


def state(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.tensors().items()}


def same(first: Trainer, second: Trainer) -> bool:
    return all(torch.equal(tensor, second.tensors()[name]) for name, tensor in first.tensors().items())


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images in float64, so that what is left of a difference is a mistake."""
    gathered = trainer_module.gathered

    def doubled(*given: Any) -> tuple[Tensor, Tensor]:
        images, labels = gathered(*given)
        return images.double(), labels

    monkeypatch.setattr(trainer_module, "gathered", doubled)
    monkeypatch.setattr(stack_module, "gathered", doubled)


# ---------------------------------------------------------------- a layer


def triton_interpreter() -> bool:
    if "triton" not in sys.modules:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        return bool(importlib.import_module("triton.knobs").runtime.interpret)
    except ImportError:
        return False


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize(("before", "after", "side", "stride"), [(32, 32, 8, 1), (32, 64, 16, 2), (64, 32, 4, 1)])
def test_convolution__each_run_as_by_conv2d(
    before: int, after: int, side: int, stride: int, tiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps and both gradients; five images of 16 × 16 and stride 2 are no whole number of tiles."""
    if tiled and not triton_interpreter():
        pytest.skip("needs Triton's interpreter")
    monkeypatch.setattr(stacked, "INTERPRETED", tiled)
    monkeypatch.setattr(stacked, "MANY", 300)  # so that the gradient of the weight is in parts, too
    runs, count = 3, 5
    maps = torch.randn(runs * count, before, side, side, generator=SOURCE).requires_grad_()
    weight = torch.randn(runs, after, before, 3, 3, generator=SOURCE).requires_grad_()
    found = stacked.convolution(maps, weight, stride)
    slopes = torch.randn(found.shape, generator=SOURCE)
    by_maps, by_weight = torch.autograd.grad(found, (maps, weight), slopes)
    pieces, slope_pieces = maps.unflatten(0, (runs, count)), slopes.unflatten(0, (runs, count))
    for number in range(runs):
        piece, own = (each[number].detach().requires_grad_() for each in (pieces, weight))
        expected = torch.nn.functional.conv2d(piece, own, None, stride, 1)
        expected_maps, expected_weight = torch.autograd.grad(expected, (piece, own), slope_pieces[number])
        for got, wanted in (
            (found.unflatten(0, (runs, count))[number], expected),
            (by_maps.unflatten(0, (runs, count))[number], expected_maps),
            (by_weight[number], expected_weight),
        ):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


# ---------------------------------------------------------------- epochs


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("statistics", ["batch", "first"])
@pytest.mark.parametrize("name", ["er", "er-ace"])
def test_stack__as_by_themselves_but_for_rounding(name: str, statistics: str) -> None:
    """Weights, momenta and statistics, of runs that have seen different classes, over two epochs."""
    together, alone = (
        [make_trainer(seed, name, stacked=on, double=True, statistics=statistics) for seed in range(3)]
        for on in (True, False)
    )
    stacks = Stacks()
    for _ in range(2):
        losses = fleet.train_epoch(together, stacks)
        assert losses == pytest.approx(fleet.train_epoch(alone), rel=1e-6)
    assert len(set(losses)) == 3
    for first, second in zip(together, alone, strict=True):
        assert first.epoch == second.epoch == 2
        for key, tensor in second.tensors().items():
            torch.testing.assert_close(first.tensors()[key], tensor, rtol=1e-9, atol=1e-11, msg=key)


@pytest.mark.parametrize(("width", "statistics"), [(WIDTH, "batch"), (5, "batch"), (WIDTH, "first")])
def test_stack__the_same_bits_in_any_company_and_place(width: int, statistics: str) -> None:
    """Of width 5 what belongs to a run does not begin where a processor would like it to."""
    made = functools.partial(make_trainer, width=width, statistics=statistics)
    alone, first, last = made(1), [*map(made, range(3))], [*map(made, (5, 6, 7, 8, 9, 10, 11, 1))]
    stacks = [Stacks() for _ in range(3)]
    for _ in range(2):
        outcomes = [fleet.train_epoch(group, kept)[place] for group, kept, place in zip(
            ([alone], first, last), stacks, (0, 1, 7), strict=True
        )]  # fmt: skip
        assert len(set(outcomes)) == 1
    assert same(alone, first[1])
    assert same(alone, last[7])


def test_stack__each_run_at_its_own_rate() -> None:
    """One in its first epoch, one in its last, where the rate has decayed, and one that was told another."""
    together, alone = ([make_trainer(0), make_trainer(2), make_trainer(1, rate=0.05)] for _ in range(2))
    together[1].epoch = alone[1].epoch = 2
    stacks = Stacks()
    fleet.train_epoch(together, stacks)
    assert len(stacks) == 1
    for each, expected in zip(together, alone, strict=True):
        fleet.train_epoch([expected], Stacks())
        assert same(each, expected)
    slow, fast = make_trainer(2), make_trainer(2)
    slow.epoch = 2
    before = state(slow)
    fleet.train_epoch([slow], Stacks())
    fleet.train_epoch([fast], Stacks())
    moved = [(each.tensors()["model.head.bias"] - before["model.head.bias"]).norm() for each in (slow, fast)]
    assert moved[0] < 0.6 * moved[1], "× 0.3 after two of three epochs"


def test_stack__one_whose_loss_is_no_number_harms_no_other() -> None:
    broken, good, alone = make_trainer(0), make_trainer(1), make_trainer(1)
    with torch.no_grad():
        next(broken.model.parameters()).fill_(torch.nan)
    first, second = fleet.train_epoch([broken, good], Stacks())
    assert isinstance(first, float)
    assert np.isnan(first)
    assert [second] == fleet.train_epoch([alone], Stacks())
    assert same(good, alone)


def test_stacks__eight_to_a_stack_and_only_what_is_alike() -> None:
    many = [make_trainer(seed, steps=1) for seed in range(PLACES + 1)]
    longer, other, plain = make_trainer(0, steps=2), make_trainer(0, "er", steps=1), make_trainer(0, stacked=False)
    still = make_trainer(0, statistics="first")
    first = make_trainer(0)
    first.begin(Episode(torch.arange(20), torch.arange(0), torch.ones(CLASSES).bool(), (0, 0)))
    stacks = Stacks()
    groups, alone = stacks.split([plain, *many, longer, first, other, still])
    assert [group.trainers for group in groups] == [many[:PLACES], many[PLACES:], [longer], [other], [still]]
    assert alone == [plain, first], "a first episode replays nothing, and is the same for all"
    made = [group.stack() for group in groups]
    assert len(set(map(id, made))) == len(stacks) == 5
    assert [group.stack() for group in stacks.split(many)[0]] == made[:2]
    assert stacks.split([longer])[0][0].stack() is made[0], "steps are no reason for a stack of its own"
    stacks.keep([plain, longer])
    assert len(stacks) == 3
    stacks.keep([plain])
    assert len(stacks) == 0


def test_stack__longer_and_shorter_epochs_in_one_as_in_two() -> None:
    stacks = Stacks()
    for steps in (2, 1, 3):
        trainer, fresh = make_trainer(0, steps=steps), make_trainer(0, steps=steps)
        assert fleet.train_epoch([trainer], stacks) == fleet.train_epoch([fresh], Stacks())
        assert same(trainer, fresh)
    assert len(stacks) == 1


def test_stack__that_cannot_be_made_or_fails_is_its_runs_matter_alone() -> None:
    """And the runs are not kept by it."""
    error = torch.cuda.OutOfMemoryError("out of memory")

    def refuse(*_: Any) -> None:
        raise error

    for name in ("__init__", "_step"):
        pair, plain, alone = [make_trainer(0), make_trainer(1)], *(make_trainer(2, stacked=False) for _ in range(2))
        stacks = Stacks()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stack_module.Stack, name, refuse)
            outcomes = fleet.train_epoch([pair[0], plain, pair[1]], stacks)
        assert outcomes == [error, alone.train_epoch(), error]
        assert same(plain, alone)
        gone = weakref.ref(pair[0])
        error.__traceback__ = None  # its frames know them
        del pair
        gc.collect()
        assert gone() is None


def test_stack__forgets_its_runs_after_an_epoch() -> None:
    trainer, stacks = make_trainer(0), Stacks()
    fleet.train_epoch([trainer], stacks)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    assert len(stacks) == 1


@pytest.mark.parametrize(
    ("name", "model", "side", "batch", "device", "told"),
    [
        ("mir", resnet18(4, 4), 32, 10, "cpu", "er and er-ace, got mir"),
        ("er-ace-star", resnet18(4, 4), 32, 10, "cpu", "got er-ace-star"),
        ("joint", resnet18(4, 4), 32, 10, "cpu", "got joint"),
        ("er", resnet18(4, 4), 32, 12, "cpu", "got 12 and 10"),
        ("er", resnet18(4, 4), 28, 10, "cpu", "a multiple of 8 pixels a side, got 28"),
        ("er", small_net(4), 32, 10, "cpu", "the ResNet, got the net SmallNet"),
        ("er", resnet18(4, 20), 32, 10, "cuda", "a multiple of 32, got 20"),
    ],
)
def test_check_stackable__says_what_cannot_be(
    name: str, model: Any, side: int, batch: int, device: str, told: str
) -> None:
    with pytest.raises(ValueError, match=rf"train\.stacked .*{told}.*leave out train\.stacked"):
        check_stackable(learner(name), model, side, batch, device)


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four classes of 16 × 16 images in colour, each bright in a quarter of its own."""
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 4
    images = generator.integers(0, 90, size=(120, 16, 16, 3))
    for image, label in zip(images, labels, strict=True):
        image[8 * (label // 2) :][:8, 8 * (label % 2) :][:, :8] += 120
    images = images.astype(np.uint8)
    file = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(file, train_images=images[:80], train_labels=labels[:80], test_images=images[80:], test_labels=labels[80:])
    return str(file)


def config(file: str, seed: int, selector: str = "random", *, stacked: bool = True, **more: Any) -> RunConfig:
    train = {"epochs": 1, "stacked": stacked}
    given = {"data": {"name": file, "episodes": 2}, "train": train, "model": {"width": WIDTH}, "device": "cpu"}
    return make_config(flags={**given, "views": ["pixels"], "capacity": 8, "seed": seed, "selector": selector, **more})


def numbers(result: Any) -> Any:
    return {name: result[name] for name in ("accuracy", "picks", "metrics")}


def test_run__stacked_as_alone_and_under_a_name_of_its_own(data: str, tmp_path: Path) -> None:
    other = {"width": WIDTH, "initialisation": "torch", "head": "grown"}
    configs = [
        config(data, 0),
        config(data, 1),
        config(data, 0, "maxherding", capacity=4),
        config(data, 0, model=other),
    ]
    together = run_all(configs, tmp_path / "together")
    for each, result in zip(configs, together, strict=True):
        assert numbers(result) == numbers(run(each, tmp_path / "alone"))
    assert numbers(together[3]) != numbers(together[0])
    plain, still = config(data, 0, stacked=False), config(data, 0, train={"epochs": 1, "statistics": "first"})
    assert len({run_hash(plain), run_hash(still), run_hash(configs[0])}) == 3
    assert first_key(plain) == first_key(configs[0]) == first_key(still), "the first episode is the same for all"


def test_run_all__runs_of_a_stack_that_fails_tell_of_it_once_each(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(stack_module.Stack, "_step", refuse)
    results = run_all([*(config(data, seed) for seed in range(3)), config(data, 0, stacked=False)], tmp_path)
    assert [isinstance(result, Failure) for result in results] == [True, True, True, False]
    for failure in results[:3]:
        assert isinstance(failure, Failure)
        assert len(failure.error.__notes__) == 1


@pytest.mark.parametrize(("kinds", "most"), [((True, True), PLACES), ((True, False), 1)])
def test_run_all__auto_fills_stacks_where_all_that_is_left_is_stacked(
    data: str, tmp_path: Path, kinds: tuple[bool, ...], most: int
) -> None:
    seen = []
    configs = [config(data, seed, stacked=on) for seed, on in enumerate(kinds)]
    run_all(configs, tmp_path, on_pace=lambda pace: seen.append(pace.runs))
    assert max(seen) == min(most, len(configs))


def test_run__what_cannot_be_stacked_is_refused_before_anything_is_written(data: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="er and er-ace, got mir"):
        run(config(data, 0, learner="mir"), tmp_path / "runs")
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_identity__a_run_that_is_not_stacked_has_the_name_it_always_had(data: str) -> None:
    from keepset.experiment.identity import identity

    assert not {"stacked", "statistics"} & set(identity(config(data, 0, stacked=False))["train"])
    assert identity(config(data, 0))["train"]["stacked"] is True
    assert identity(config(data, 0, train={"statistics": "first"}))["train"]["statistics"] == "first"


def test_identity__settings_that_are_not_read_and_a_schedule_that_was_another(data: str) -> None:
    from keepset.experiment.identity import identity

    def training(learner: str = "er-ace", **train: Any) -> dict[str, Any]:
        found: dict[str, Any] = identity(config(data, 0, learner=learner, stacked=False, train=train))["train"]
        return found

    assert training("finetune", statistics="first") == training("finetune"), "nothing is replayed"
    assert "decays" not in training(decay_at=0.5)
    assert training(decay_at=0.49)["decays"] == "again", "once, as it was before"


# ---------------------------------------------------------------- grids

TRAIN = {"epochs": 1}
MIXED: list[dict[str, Any]] = [
    {"learner": "er-ace"},
    {"learner": "er-ace-star"},
    {"learner": "er", "model": {"width": 32}},
    {"learner": "er", "model": {"width": 20}},
    {"learner": "er", "learning": {"memory_batch": 5}},
    {"learner": "er", "data": {"name": "digits"}},
    {"learner": "er", "device": "cpu"},
]


def planned(**more: Any) -> Planned:
    config = make_config(flags={"data": {"name": "cifar100"}, "train": TRAIN, "device": "cuda", **more})
    return Planned(run_hash(config), config, 1, 10)


@pytest.fixture
def with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepset.learning.stack.importlib.util.find_spec", lambda _name: object())


@pytest.mark.usefixtures("with_triton")
def test_stacked_where_possible__and_all_others_as_they_are(tmp_path: Path) -> None:
    runs = tuple(planned(**more) for more in MIXED)
    found = stacked_where_possible(Grid(runs, {"partition": "gpu"}), tmp_path)
    assert [run.config.train.stacked for run in found.runs] == [True, False, True, False, False, False, False]
    assert [run.name == before.name for run, before in zip(found.runs, runs, strict=True)] == [
        not run.config.train.stacked for run in found.runs
    ]
    assert all(run.name == run_hash(run.config) for run in found.runs)
    assert found.slurm == {"partition": "gpu"}


@pytest.mark.usefixtures("with_triton")
def test_stacked_where_possible__what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    done, left = planned(seed=0), planned(seed=1)
    (tmp_path / done.name).mkdir()
    (tmp_path / done.name / "result.json").write_text("{}")
    found = stacked_where_possible(Grid((done, left), {}), tmp_path).runs
    assert found[0] == done
    assert found[1].config.train.stacked


def test_stacked_where_possible__nothing_without_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepset.learning.stack.importlib.util.find_spec", lambda _name: None)
    grid = Grid((planned(),), {})
    assert stacked_where_possible(grid, tmp_path) == grid
