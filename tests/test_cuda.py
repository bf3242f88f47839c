"""On a GPU: the same picks and steps as on the CPU, and results that stay there. Runs wherever CUDA is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import keepset
from keepset.selection import SELECTORS
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
    result = run(make_config(flags=flags), tmp_path / "runs")
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
    first, second = make_trainer(), make_trainer(seed=1)
    first.train_epoch()
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
