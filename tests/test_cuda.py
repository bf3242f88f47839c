"""On a GPU: the same picks and steps as on the CPU, and results that stay there. Runs wherever CUDA is."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import keepset
from keepset.learning import fleet, learner, stacked
from keepset.learning.capture import captured as captured_once
from keepset.learning.norm import Norm
from keepset.learning.resnet import resnet18
from keepset.learning.stack import Stacks
from keepset.learning.trainer import Engine, Episode, Material, Trainer, TrainSettings
from keepset.selection import SELECTORS, tensor_core_scales, tensor_cores
from keepset.selection.geometry import cloud
from keepset.selection.kernels import Similarity
from keepset.selection.scales import middle_distances
from keepset.selection.streaming import Kernel
from keepset.views.augment import Augmentation, augment, draw
from keepset.views.lars import LARS, Rule
from keepset.views.pretrain import Pretrainer
from keepset.views.simclr import SimCLRSettings, simclr_method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

GENERATOR = torch.Generator().manual_seed(0)
VIEWS = {
    "a": torch.randn(300, 32, dtype=torch.float64, generator=GENERATOR),
    "b": torch.randn(300, 16, dtype=torch.float64, generator=GENERATOR),
}
OPTIONS: dict[str, dict[str, Any]] = {"rainbow": {"uncertainty": torch.linspace(0, 1, 300)}}


def on_gpu(views: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: view.cuda() for name, view in views.items()}


@pytest.mark.parametrize("method", SELECTORS)
def test_select__same_picks_as_on_the_cpu(method: str) -> None:
    options = OPTIONS.get(method, {})
    expected = keepset.select(VIEWS, 12, method=method, **options)
    found = keepset.select(on_gpu(VIEWS), 12, method=method, **options)
    assert isinstance(found.indices, torch.Tensor)
    assert found.indices.is_cuda
    assert list(found) == list(expected)
    assert torch.allclose(torch.as_tensor(found.gains).cpu(), torch.as_tensor(expected.gains), equal_nan=True)


@pytest.mark.parametrize("method", ["mers", "mers-probcover"])
@pytest.mark.parametrize(
    "options",
    [
        {"fusion": "max-then-sum"},
        {"bandwidth": "knn"},
        {"bandwidth": 0.5},
        {"point_weights": torch.linspace(0, 1, 300)},
    ],
    ids=str,
)
def test_select__options_as_on_the_cpu(method: str, options: dict[str, Any]) -> None:
    expected = keepset.select(VIEWS, 12, method=method, start=[5, 9], **options)
    assert list(keepset.select(on_gpu(VIEWS), 12, method=method, start=[5, 9], **options)) == list(expected)


def test_select__many_points_take_the_bracketed_median_and_the_lazy_search() -> None:
    views = {"a": torch.randn(3000, 8, dtype=torch.float64, generator=GENERATOR)}
    expected = keepset.select(views, 30)
    found = keepset.select(on_gpu(views), 30)
    assert list(found) == list(expected)
    assert found.scales == pytest.approx(expected.scales)


def clumped_views(count: int, sizes: tuple[int, ...] = (100, 130)) -> dict[str, torch.Tensor]:
    """On the GPU in float32, with a pair of copies in the first view."""
    views = {}
    for name, size in zip("abc", sizes, strict=False):
        centres = 2 * torch.randn(50, size, generator=GENERATOR)
        members = torch.randint(50, (count,), generator=GENERATOR)
        views[name] = (centres[members] + torch.randn(count, size, generator=GENERATOR)).cuda()
    views["a"][7] = views["a"][count - 3]
    return views


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "maxherding"},
        {"bandwidth": "knn"},
        {"metric": "euclidean", "weights": "inverse"},
        {"kernel": "laplace", "metric": "literal"},
        {"fusion": "max-then-sum"},
        {"start": [5, 9]},
        {"point_weights": torch.linspace(0, 1, 3001)},
        {"method": "mers-probcover"},
    ],
    ids=str,
)
def test_streamed__tensor_cores_pick_as_the_matrix_does(options: dict[str, Any]) -> None:
    views = clumped_views(3001)
    assert tensor_cores.usable(list(views.values()))
    dense = keepset.select(views, 40, memory=2**60, **options)
    streamed = keepset.select(views, 40, memory=1, **options)
    assert (dense.search, streamed.search) == ("dense", "streamed")
    assert streamed.weights == pytest.approx(dense.weights, rel=1e-4)
    assert streamed.scales == pytest.approx(dense.scales, rel=1e-5)
    assert streamed.objective == pytest.approx(dense.objective, rel=1e-5)
    assert list(streamed) == list(dense)


def test_streamed__float64_takes_blocks_and_picks_the_same() -> None:
    views = {name: view.double() for name, view in clumped_views(1500).items()}
    assert not tensor_cores.usable(list(views.values()))
    assert list(keepset.select(views, 20, memory=1)) == list(keepset.select(views, 20, memory=2**60))


def test_tensor_cores__row_sums_and_gains_to_float64() -> None:
    views = list(clumped_views(5003).values())
    similar = [Similarity("rbf", "cosine", 0.7, 0.4), Similarity("rbf", "cosine", 0.9, 0.6)]
    fused = tensor_cores.split(views).kernel([0, 1], similar, None)
    exact = Kernel([cloud(view.double()) for view in views], similar, None)
    torch.testing.assert_close(fused.row_sums(), exact.row_sums(), rtol=1e-6, atol=0)
    rows, points = torch.randperm(5003)[:300].cuda(), torch.randperm(5003)[:4000].cuda()
    low, high = torch.full((5003,), 0.2).cuda(), torch.full((5003,), 0.6).cuda()
    for some in (rows, None):
        found, expected = (kernel.excess(some, points, low.to(t), high.to(t)) for kernel, t in
                           ((fused, torch.float32), (exact, torch.float64)))  # fmt: skip
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(fused.highest(rows).double(), exact.highest(rows), rtol=1e-5, atol=1e-5)


def test_tensor_cores__the_middle_of_all_distances_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    views = list(clumped_views(4001).values())
    points = tensor_cores.split(views)
    upper = torch.triu_indices(4001, 4001, 1, device="cuda")
    for paired in (2**15, 1000):
        monkeypatch.setattr(tensor_core_scales, "PAIRED", paired)
        for m, view in enumerate(views):
            ordered = points.distances(m, points.everyone)[upper[0], upper[1]].sort().values
            middle = float(ordered[(len(ordered) - 1) // 2]), float(ordered[len(ordered) // 2])
            found = tensor_core_scales.middle_distances(points, m)
            assert found == middle
            assert found == pytest.approx(middle_distances(cloud(view.double())), rel=1e-5)


def test_tensor_cores__neighbours_of_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_core_scales, "COMPARED", 1024)
    points = tensor_cores.split(list(clumped_views(6001).values()))
    blocks = list(tensor_core_scales.near_distances(points, 0, 60))
    assert blocks[0].shape[1] < 6001
    found = torch.cat([block.topk(61, largest=False).values for block in blocks])
    expected = points.distances(0, points.everyone).topk(61, largest=False).values
    assert torch.equal(*(rows[rows.double().sum(1).argsort()] for rows in (found, expected)))


def test_select_per_class__labels_and_views_on_the_gpu() -> None:
    labels = torch.arange(300) % 3
    expected = keepset.select_per_class(VIEWS, labels, 5)
    found = keepset.select_per_class(on_gpu(VIEWS), labels.cuda(), 5)
    assert {label: list(chosen) for label, chosen in found.items()} == {c: list(s) for c, s in expected.items()}


def test_select__a_generator_of_the_gpu() -> None:
    seeds = [torch.Generator("cuda").manual_seed(3) for _ in range(2)]
    first, second = (list(keepset.select(VIEWS, 9, method="random", generator=seed)) for seed in seeds)
    assert first == second


def test_buffer_and_embed__stay_on_the_gpu() -> None:
    images = torch.rand(20, 4)
    features = keepset.embed(torch.nn.Linear(4, 3).cuda(), images, batch_size=7)
    assert features.is_cuda
    buffer = keepset.Buffer(per_class=2)
    labels = torch.arange(20) % 2
    buffer.update(images.cuda(), labels, keepset.select_per_class(features, labels, 2))
    data, sampled = buffer.sample(3)
    assert data.is_cuda
    assert sampled.is_cuda
    assert not buffer.to("cpu")[0].is_cuda


@pytest.mark.parametrize("learner", ["er", "er-ace", "mir", "er-ace-star", "joint"])
@pytest.mark.parametrize("side", [8, 32])
def test_run__trains_on_the_gpu_in_bfloat16(learner: str, side: int, tmp_path: Path) -> None:
    import numpy as np

    from keepset.experiment.config import make_config
    from keepset.experiment.run import run

    labels = np.arange(160) % 4
    noise = np.random.default_rng(0).integers(0, 60, size=(160, side, side, 3))
    images = (noise + 45 * labels[:, None, None, None]).astype(np.uint8)
    file = tmp_path / "data.npz"
    np.savez(file, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    settings = {"name": str(file), "episodes": 2}
    flags = {"data": settings, "learner": learner, "device": "cuda", "train": {"epochs": 3}, "capacity": 20}
    engine = Engine(compile=side == 8)  # the small net of small images is soon compiled
    result = run(make_config(flags=flags), tmp_path / "runs", engine=engine)
    assert result["accuracy"][0][0] > 0.6
    assert len(result["picks"][1]["2"]["rows"]) == 5


# ---------------------------------------------------------------- self-supervised training

PRETRAINING = SimCLRSettings(
    epochs=2, batch=32, rate=0.1, warmup=0, width=8, hidden=32, output=16, precision="float32", compile=False
)


def make_trainer(**changes: Any) -> Pretrainer:
    """Of 64 coloured images on the GPU: two steps an epoch."""
    source = torch.Generator().manual_seed(0)
    images = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8, generator=source)
    settings = replace(PRETRAINING, **changes)
    return Pretrainer(images.cuda(), settings, simclr_method(settings))


def weights_of(trainer: Pretrainer) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in trainer.network.parameters()])


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_pretraining__captured_as_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the steps before a capture moved would show in both: without putting it back by 0.2 and by 0.9."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    captured, plain = make_trainer(), make_trainer()
    plain.capture = False
    before = weights_of(plain)
    assert torch.equal(weights_of(captured), before)
    losses = [[trainer.train_epoch() for _ in range(2)] for trainer in (captured, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert apart(captured.features(), plain.features()) < 0.02
    assert apart(weights_of(captured) - before, weights_of(plain) - before) < 0.3
    assert captured._run != captured._step
    assert plain._run == plain._step


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize(("precision", "nearly"), [("float32", 0.02), ("bfloat16", 0.1)])
def test_pretraining__compiled_as_written(precision: str, nearly: float) -> None:
    trainers = [make_trainer(), make_trainer(compile=True, precision=precision)]
    losses = [[trainer.train_epoch() for _ in range(2)] for trainer in trainers]
    assert losses[1] == pytest.approx(losses[0], rel=nearly)
    features = [trainer.features() for trainer in trainers]
    assert features[1].is_cuda
    assert features[1].dtype == torch.float32
    assert features[1].shape == (64, 64)
    assert features[1].isfinite().all()
    assert apart(features[1], features[0]) < nearly


def test_pretraining__is_taken_up_from_a_file(tmp_path: Path) -> None:
    """Weights and momenta lie in the layout of the tensor cores, and in the file in the plain one."""
    first, second = make_trainer(), make_trainer()
    first.train_epoch()
    for _ in range(2):
        second.train_epoch()
    first.save(tmp_path / "state")
    second.load(tmp_path / "state")
    assert second.epoch == 1
    assert torch.equal(weights_of(first), weights_of(second))
    assert all(map(torch.equal, first.optimiser.momenta, second.optimiser.momenta))
    assert apart(second.features(), first.features()) < 1e-3


def augmented(function: Callable[..., torch.Tensor], device: str) -> torch.Tensor:
    """(96, 3, 32, 32) in 0..1. Without solarisation, where rounding can move a pixel across the threshold."""
    source = torch.Generator().manual_seed(0)
    images = torch.randint(256, (96, 3, 32, 32), dtype=torch.uint8, generator=source).to(device)
    draws = draw(Augmentation(), 96, 32, 32, source).map(lambda drawn: drawn.to(device))
    return function(images, draws, torch.zeros(3, device=device), torch.ones(3, device=device))


def test_augment__on_the_gpu_as_on_the_cpu() -> None:
    found, expected = augmented(augment, "cuda"), augmented(augment, "cpu")
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-3)


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
def test_augment__compiled_as_written() -> None:
    compiled = torch.compile(augment, dynamic=False)
    torch.testing.assert_close(augmented(compiled, "cuda"), augmented(augment, "cuda"), rtol=0, atol=1e-3)


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_lars__steps_as_on_the_cpu(compiled: bool, clip: bool) -> None:
    source = torch.Generator().manual_seed(0)
    shapes = [(8, 3, 3, 3), (8,), (1500, 2), (5, 7)]
    start, *gradients = ([torch.randn(shape, generator=source) for shape in shapes] for _ in range(4))
    rule = Rule(momentum=0.9, eta=0.02, decay=0.1, clip=clip)
    moved = []
    for device in ("cpu", "cuda"):
        weights = [torch.nn.Parameter(values.to(device)) for values in start]
        optimiser = LARS(weights, rule, compiling=compiled and device == "cuda")
        for step in gradients:
            for weight, gradient in zip(weights, step, strict=True):
                weight.grad = gradient.to(device)
            optimiser.step(torch.tensor(0.3, device=device))
        moved.append(torch.cat([weight.detach().cpu().flatten() for weight in weights]))
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- runs side by side

PLAIN, CAPTURED, COMPILED = Engine(capture=False, compile=False), Engine(compile=False), Engine()
CLASSES = 4


@functools.cache
def make_material() -> Material:
    """64 coloured images on the GPU."""
    source = torch.Generator().manual_seed(0)
    images = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8, generator=source).cuda()
    labels, mean, std = (torch.arange(64) % CLASSES).cuda(), torch.full((3,), 0.5).cuda(), torch.full((3,), 0.3).cuda()
    return Material(images, labels, mean, std, padding=4, flip=True)


def make_run(
    name: str,
    seed: int,
    engine: Engine,
    precision: str = "auto",
    *,
    width: int = 8,
    stacked: bool = False,
    statistics: str = "batch",
) -> Trainer:
    """A narrow ResNet: ten new images a step, and as many of the memory."""
    model = resnet18(CLASSES, width, 3, generator=seed).cuda()
    settings = TrainSettings(epochs=2, batch=10, precision=precision, stacked=stacked, statistics=statistics)
    return Trainer(model, learner(name), settings, make_material(), engine)


def begin_episode(run: Trainer, number: int, seed: int, count: int = 32) -> None:
    """Classes 0 and 1 come first; after them 2 and 3, with twelve of the first to replay."""
    first, later = (torch.arange(64)[torch.arange(64) % CLASSES // 2 == half] for half in (0, 1))
    new, memory = (later, first[:12]) if number else (first, first[:0])
    seen = (torch.arange(CLASSES) < (4 if number else 2)).cuda()
    run.begin(Episode(new[:count], memory, seen, (seed, "episode", number)))


def state_of(run: Trainer) -> dict[str, torch.Tensor]:
    torch.cuda.synchronize()
    return {name: tensor.detach().clone() for name, tensor in run.tensors().items()}


def trained(run: Trainer, seed: int, episodes: int) -> list[float]:
    """The losses of all epochs."""
    losses = []
    for number in range(episodes):
        begin_episode(run, number, seed)
        losses += [run.train_epoch() for _ in range(2)]
    return losses


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("er", CAPTURED),
        ("er-ace", CAPTURED),
        ("er-ace-star", CAPTURED),
        ("mir", CAPTURED),
        ("er-ace", COMPILED),
        ("er-ace-star", COMPILED),
    ],
    ids=["er", "er-ace", "er-ace-star", "mir", "er-ace-compiled", "er-ace-star-compiled"],
)
def test_fleet__a_run_beside_two_others_has_the_bits_it_has_alone(name: str, engine: Engine) -> None:
    together, alone = [make_run(name, seed, engine) for seed in range(3)], make_run(name, 1, engine)
    expected, found = trained(alone, 1, 2), []
    for number in (0, 1):
        for seed, run in enumerate(together):
            begin_episode(run, number, seed)
        found += [fleet.train_epoch(together) for _ in range(2)]
    assert [losses[1] for losses in found] == expected
    assert len({losses[0] for losses in found} | {losses[1] for losses in found}) == 8, "other seeds, other losses"
    ended = state_of(together[1])
    for key, tensor in state_of(alone).items():
        assert torch.equal(ended[key], tensor), key


def stacked_run(seed: int, statistics: str) -> Trainer:
    run = make_run("er-ace", seed, COMPILED, width=32, stacked=True, statistics=statistics)
    begin_episode(run, 1, seed)
    return run


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize("statistics", ["batch", "first"])
def test_stack__a_run_has_the_same_bits_in_any_company_and_place(statistics: str) -> None:
    alone, together = stacked_run(1, statistics), [stacked_run(seed, statistics) for seed in (5, 6, 7, 1, 2)]
    stacks = [Stacks(), Stacks()]
    for _ in range(2):
        assert fleet.train_epoch([alone], stacks[0])[0] == fleet.train_epoch(together, stacks[1])[3]
    ended = state_of(together[3])
    for key, tensor in state_of(alone).items():
        assert torch.equal(ended[key], tensor), key


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize("statistics", ["batch", "first"])
def test_stack__as_by_itself_but_for_rounding(monkeypatch: pytest.MonkeyPatch, statistics: str) -> None:
    """One step. Rounding factors to ten bits, as tensor cores do, turns what it moves by 0.08; a wrong layer by 1."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    run, plain = (
        make_run("er-ace", 0, engine, "float32", width=32, stacked=engine is COMPILED, statistics=statistics)
        for engine in (COMPILED, PLAIN)
    )
    for each in (run, plain):
        begin_episode(each, 1, 0, count=10)
    before = torch.cat([weight.detach().flatten() for weight in plain.model.parameters()])
    assert fleet.train_epoch([run]) == pytest.approx([plain.train_epoch()], rel=2e-2)
    moved = [torch.cat([w.detach().flatten() for w in each.model.parameters()]) - before for each in (run, plain)]
    assert apart(moved[0], moved[1]) < 0.25


@pytest.mark.parametrize(("before", "after", "side", "stride"), [(32, 32, 8, 1), (64, 128, 32, 2), (128, 64, 4, 1)])
def test_stack__convolutions_in_bfloat16_as_in_float32(before: int, after: int, side: int, stride: int) -> None:
    source = torch.Generator().manual_seed(0)
    maps = torch.randn(3 * 5, before, side, side, generator=source).bfloat16().cuda()
    weight = torch.randn(3, after, before, 3, 3, generator=source).bfloat16().cuda()
    slopes = torch.randn(15, after, side // stride, side // stride, generator=source).bfloat16().cuda()
    moving = maps.requires_grad_(), weight.requires_grad_()
    found = stacked.convolution(*moving, stride)
    got = found, *torch.autograd.grad(found, moving, slopes)
    pieces, own = maps.detach().float().unflatten(0, (3, 5)).requires_grad_(), weight.detach().float().requires_grad_()
    wanted = torch.cat([torch.nn.functional.conv2d(p, w, None, stride, 1) for p, w in zip(pieces, own, strict=True)])
    by_maps, by_weight = torch.autograd.grad(wanted, (pieces, own), slopes.float())
    for first, second in zip(got, (wanted, by_maps.flatten(0, 1), by_weight), strict=True):
        assert apart(first.detach().float(), second.detach()) < 1e-2


def test_fleet__measuring_leaves_the_runs_as_they_were() -> None:
    runs = [make_run("er-ace", seed, CAPTURED) for seed in range(3)]
    for seed, run in enumerate(runs):
        begin_episode(run, 1, seed)
    assert fleet.room_for(runs[0]) >= 3
    for run in runs:
        fleet.begin(run)
    before = [state_of(run) for run in runs]
    assert fleet.best_number(runs) in (1, 2)
    for run, kept in zip(runs, before, strict=True):
        now = state_of(run)
        assert all(torch.equal(now[key], kept[key]) for key in kept)
        assert int(run._place) == 0


@pytest.mark.parametrize("name", ["er", "er-ace", "er-ace-star", "mir"])
def test_trainer__captured_as_step_by_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over three episodes, the last of which plays the graph of the one before: old masks or noise would show."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    captured, plain = (make_run(name, 0, engine, "float32") for engine in (CAPTURED, PLAIN))
    before = torch.cat([weight.detach().flatten() for weight in plain.model.parameters()])
    assert trained(captured, 0, 3) == pytest.approx(trained(plain, 0, 3), rel=2e-2)
    moved = [torch.cat([w.detach().flatten() for w in run.model.parameters()]) - before for run in (captured, plain)]
    assert apart(moved[0], moved[1]) < 0.1
    assert captured._replay is not None
    assert plain._replay is None


def test_trainer__three_episodes_need_two_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without and one with a memory; a shorter episode needs none of its own."""
    calls: list[int] = []

    def counted(*given: Any, **more: Any) -> Callable[[], None]:
        calls.append(1)
        return captured_once(*given, **more)

    monkeypatch.setattr("keepset.learning.trainer.captured", counted)
    run = make_run("er-ace-star", 0, CAPTURED)
    assert all(map(torch.isfinite, map(torch.tensor, trained(run, 0, 3))))
    begin_episode(run, 3, 0, count=25)
    run.train_epoch()
    assert len(calls) == 2


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels-last"])
def test_norm__compiled_as_a_forward_for_each_part(layout: torch.memory_format, count: int) -> None:
    source = torch.Generator().manual_seed(0)
    maps = torch.randn(12, 5, 4, 4, generator=source) + torch.arange(12)[:, None, None, None]
    weights = torch.randn(12, 5, 4, 4, generator=source).cuda()
    norm, plain = Norm(5, rectified=True).cuda(), torch.nn.BatchNorm2d(5).cuda()
    ways: list[Callable[[torch.Tensor], torch.Tensor]] = [
        torch.compile(lambda given: norm(given, (12 // count,) * count), dynamic=False),
        lambda given: torch.cat([plain(part) for part in given.split(12 // count)]).relu(),
    ]
    found = []
    for layer, way in zip((norm, plain), ways, strict=True):
        given = maps.cuda().contiguous(memory_format=layout).requires_grad_()
        normal = way(given)
        (normal * weights).sum().backward()
        statistics = layer.running_mean, layer.running_var
        found.append([normal.detach(), given.grad, layer.weight.grad, layer.bias.grad, *statistics])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side_by_side", [3, "auto"])
def test_run_all__every_run_as_alone(side_by_side: int | str, tmp_path: Path) -> None:
    import json

    import numpy as np

    from keepset.experiment.config import make_config
    from keepset.experiment.identity import run_hash
    from keepset.experiment.run import run
    from keepset.experiment.side_by_side import run_all

    labels = np.arange(64) % CLASSES
    noise = np.random.default_rng(0).integers(0, 60, size=(64, 32, 32, 3))
    images = (noise + 45 * labels[:, None, None, None]).astype(np.uint8)
    file = tmp_path / "data.npz"
    np.savez(file, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    flags = {"data": {"name": str(file), "episodes": 2}, "model": {"width": 8}, "train": {"epochs": 2}}
    flags |= {"device": "cuda", "views": ["supervised", "pixels"], "capacity": 8}
    configs = [make_config(flags={**flags, "selector": name, "seed": s}) for s in (0, 1) for name in ("random", "mers")]
    run_all(configs, tmp_path / "all", side_by_side=side_by_side, engine=CAPTURED)
    for config in configs:
        run(config, tmp_path / "alone", engine=CAPTURED)
        told = []
        for folder in (tmp_path / "all" / run_hash(config), tmp_path / "alone" / run_hash(config)):
            result = json.loads((folder / "result.json").read_text())
            lines = [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
            told.append((lines, result["accuracy"], [[kept["rows"] for kept in e.values()] for e in result["picks"]]))
        assert told[0] == told[1]
