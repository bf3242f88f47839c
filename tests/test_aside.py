"""Gradients that are taken aside are those that are taken in turn."""

from __future__ import annotations

import pytest
import torch

from keepset.learning.aside import Convolution, join, set_aside
from keepset.learning.resnet import resnet18

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def gradients(*, aside: bool, precision: torch.dtype, layout: torch.memory_format, way: str) -> dict[str, torch.Tensor]:
    network = resnet18(5, 8, generator=0).to(memory_format=layout)  # type: ignore[call-overload]
    if aside:
        set_aside(network)

    def loss(images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = network(images).float().square().sum()
        return found

    run = loss if way == "eager" else torch.compile(loss, backend=way, dynamic=False)
    with torch.autocast("cpu", precision, enabled=precision != torch.float32, cache_enabled=False):
        value = run(IMAGES.contiguous(memory_format=layout))
    value.backward()
    join()
    return {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize(
    ("way", "precision", "layout"),
    [
        ("eager", torch.float32, torch.contiguous_format),
        ("eager", torch.float32, torch.channels_last),
        ("eager", torch.bfloat16, torch.contiguous_format),
        ("eager", torch.bfloat16, torch.channels_last),
        ("aot_eager", torch.float32, torch.contiguous_format),
        ("aot_eager", torch.bfloat16, torch.channels_last),
    ],
    ids=str,
)
def test_aside__the_gradients_are_those_of_plain_convolutions(
    way: str, precision: torch.dtype, layout: torch.memory_format
) -> None:
    plain = gradients(aside=False, precision=precision, layout=layout, way="eager")
    found = gradients(aside=True, precision=precision, layout=layout, way=way)
    assert list(found) == list(plain)
    for name, gradient in found.items():
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, plain[name], rtol=1e-5, atol=1e-5, msg=name)


def test_aside__every_convolution_of_a_block_is_set_aside() -> None:
    network = resnet18(5, 8, generator=0)
    layers = [layer for layer in network.modules() if isinstance(layer, Convolution)]
    assert len(layers) == 16
    assert not any(layer.aside for layer in layers)
    set_aside(network)
    assert all(layer.aside for layer in layers)


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 1), (2, 0), (3, 2)])
def test_aside__right_by_differences(stride: int, padding: int) -> None:
    layer = Convolution(2, 3, 3, stride, padding, bias=False, dtype=torch.float64)
    layer.aside = True
    maps = torch.randn(2, 2, 7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()

    def convolved(maps: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (maps,))  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(convolved, (maps, weight), eps=1e-4, atol=1e-4, rtol=1e-4)
