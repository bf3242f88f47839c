"""On a GPU: the same picks as on the CPU, and results that stay there. Runs wherever CUDA is."""

from pathlib import Path
from typing import Any

import pytest
import torch

import keepset
from keepset.selection import SELECTORS

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
