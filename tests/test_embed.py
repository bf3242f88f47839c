"""embed: batches, eval mode, no gradient, the mode restored."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import keepset


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.head = nn.Linear(6, 2)

    def features(self, images: Tensor) -> Tensor:
        return self.body(images)  # type: ignore[no-any-return]

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # type: ignore[no-any-return]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(23, 3, 2, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("batch_size", [1, 7, 23, 100])
def test_embed__batches_do_not_change_the_features(images: Tensor, batch_size: int) -> None:
    network = Network()
    expected = network.eval().features(images)
    assert torch.allclose(keepset.embed(network.features, images, batch_size=batch_size), expected, atol=1e-6)


def test_embed__eval_mode_inside_and_every_mode_restored(images: Tensor) -> None:
    network = Network().train()
    network.body[2].eval()  # frozen by itself
    seen: list[bool] = []
    network.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    statistics = network.body[2].running_mean.clone()  # type: ignore[operator]
    features = keepset.embed(network, images)
    assert seen == [False]
    assert not features.requires_grad
    assert network.training
    assert not network.body[2].training
    assert network.body[3].training
    assert torch.equal(network.body[2].running_mean, statistics)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrap", ["method", "partial", "model"])
def test_embed__finds_the_module_behind_a_function(images: Tensor, wrap: str) -> None:
    network = Network().train()
    expected = keepset.embed(network.features, images)
    functions: dict[str, Any] = {
        "method": network.features,
        "partial": functools.partial(network.features),
        "model": lambda batch: network.features(batch),
    }
    found = keepset.embed(functions[wrap], images, model=network if wrap == "model" else None)
    assert torch.equal(found, expected), "dropout was on"


def test_embed__mode_is_restored_after_an_error(images: Tensor) -> None:
    network = Network().train()
    with pytest.raises(RuntimeError):
        keepset.embed(network, images[:, :2])
    assert network.training


def test_embed__numpy_in_numpy_out(images: Tensor) -> None:
    network = Network()
    found = keepset.embed(network.features, images.numpy())
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, keepset.embed(network.features, images).numpy())


def test_embed__numpy_has_no_bfloat16() -> None:
    found = keepset.embed(lambda batch: batch.bfloat16(), np.ones((3, 2), np.float32))
    assert (found.dtype, found.tolist()) == (np.float32, [[1, 1]] * 3)


@pytest.mark.parametrize("size", [np.uint8(200), np.int8(100), torch.tensor(200, dtype=torch.uint8)])
def test_embed__batch_sizes_of_small_types(size: Any) -> None:
    assert keepset.embed(lambda batch: batch, torch.zeros(300, 2), batch_size=size).shape == (300, 2)


def test_embed__images_of_a_type_that_torch_lacks() -> None:
    with pytest.raises(ValueError, match="images must be of a type that torch has too, got <U1"):
        keepset.embed(lambda batch: batch, np.array([["a"]]))


@pytest.mark.parametrize(
    ("function", "count", "batch_size", "message"),
    [
        (lambda batch: batch, 3, 2, r"must return shape \(2, d\) for a batch of 2, got \(2, 3, 2, 2\)"),
        (lambda batch: batch.flatten(1)[:1], 3, 2, "must return shape"),
        (lambda batch: batch.tolist(), 3, 2, "must return a tensor, got list"),
        (lambda batch: batch.flatten(1)[:, : len(batch)], 3, 2, "as many columns for every batch, got 2 and 1"),
        (lambda batch: batch.flatten(1), 0, 2, "images must hold at least one image"),
        (lambda batch: batch.flatten(1), 3, 0, "batch_size must be in 1"),
    ],
)
def test_embed__bad_input(function: Any, count: int, batch_size: int, message: str, images: Tensor) -> None:
    with pytest.raises(ValueError, match=message):
        keepset.embed(function, images[:count], batch_size=batch_size)
