"""Shapes, sizes and the initialisation of the nets."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from keepset.learning.norm import Norm
from keepset.learning.resnet import Classifier, Point, as_product, draw_units, initialise, resnet18, small_net


def slow_count(classes: int, width: int, channels: int) -> int:
    """The weights of ResNet-18, layer by layer."""
    total = channels * width * 9 + 2 * width
    before = width
    for after in (width, 2 * width, 4 * width, 8 * width):
        for _ in range(2):
            total += before * after * 9 + 2 * after + after * after * 9 + 2 * after
            if before != after:
                total += before * after + 2 * after
            before = after
    return total + before * classes + classes


def count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_resnet18__has_the_known_number_of_weights() -> None:
    assert count(resnet18(100)) == slow_count(100, 64, 3) == 11_220_132


@pytest.mark.parametrize(("classes", "width", "channels"), [(100, 20, 3), (10, 64, 1), (7, 4, 2)])
def test_resnet18__weights_by_width_and_channels(classes: int, width: int, channels: int) -> None:
    assert count(resnet18(classes, width, channels)) == slow_count(classes, width, channels)


@pytest.mark.parametrize("width", [20, 64])
@pytest.mark.parametrize("side", [32, 64])
def test_resnet18__shapes_at_both_image_sizes(width: int, side: int) -> None:
    network = resnet18(11, width).eval()
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = network.features(images)
        logits = network(images)
    assert features.shape == (2, 8 * width)
    assert logits.shape == (2, 11)
    assert torch.equal(logits, network.head(features))


def test_resnet18__keeps_the_map_until_the_second_stage() -> None:
    network = resnet18(3, 4)
    maps = network.stem(torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    sides = []
    for block in network.blocks:
        maps = block(maps)
        sides.append(maps.shape[-1])
    assert sides == [32, 32, 16, 16, 8, 8, 4, 4]


@pytest.mark.parametrize("side", [8, 9, 28])
@pytest.mark.parametrize("channels", [1, 3])
def test_small_net__shapes(side: int, channels: int) -> None:
    network = small_net(10, channels)
    images = torch.rand(4, channels, side, side, generator=torch.Generator().manual_seed(0))
    assert network.features(images).shape == (4, 128)
    assert network(images).shape == (4, 10)
    assert isinstance(network.head, nn.Linear)


BUILDERS: list[Callable[[Any], Classifier]] = [
    lambda generator: resnet18(10, 20, generator=generator),
    lambda generator: small_net(10, generator=generator),
]


@pytest.mark.parametrize("build", BUILDERS)
def test_nets__same_generator_same_bits_and_nothing_drawn_elsewhere(build: Callable[[Any], Classifier]) -> None:
    before = torch.get_rng_state()
    first = build(7).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    again, drawn, other = (build(g).state_dict() for g in (7, torch.Generator().manual_seed(7), 8))
    assert all(torch.equal(first[name], again[name]) and torch.equal(first[name], drawn[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("build", BUILDERS)
def test_nets__start_trainable_on_the_cpu_in_training_mode(build: Callable[[Any], Classifier]) -> None:
    network = build(None)
    assert network.training
    assert all(weight.requires_grad and weight.is_leaf for weight in network.parameters())
    assert all(value.device.type == "cpu" for value in network.state_dict().values())
    for layer in network.modules():
        if isinstance(layer, Norm):
            assert layer.weight.eq(1).all()
            assert layer.bias.eq(0).all()
            assert layer.running_mean.eq(0).all()
            assert layer.running_var.eq(1).all()


def test_nets__weights_are_spread_as_they_should() -> None:
    """He's normal for convolutions, 2 / fan-out; ±1/√features, uniform, for the head."""
    network = resnet18(100, 64, generator=1)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            spread = math.sqrt(2 / (layer.out_channels * layer.kernel_size[0] ** 2))
            assert float(layer.weight.detach().std()) == pytest.approx(spread, rel=0.1)
            assert abs(float(layer.weight.detach().mean())) < 0.1 * spread
    bound = 1 / math.sqrt(512)
    assert isinstance(network.head, nn.Linear)
    for values in (network.head.weight.detach(), network.head.bias.detach()):
        assert float(values.abs().max()) <= bound
        assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.2)


@pytest.mark.parametrize("build", [functools.partial(resnet18, 100, 32), functools.partial(small_net, 100, 3)])
def test_nets__as_torch_begins_its_layers(build: Callable[..., Classifier]) -> None:
    """Uniform, of variance 1/3 over the inputs: what torch's own layers have, which are the oracle."""
    network = build(generator=1, initialisation="torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                own = nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size[0], bias=False).weight.detach()
                found = layer.weight.detach()
                bound = 1 / math.sqrt(layer.in_channels * layer.kernel_size[0] ** 2)
                assert max(float(found.abs().max()), float(own.abs().max())) < 1.0001 * bound
                assert float(found.std()) == pytest.approx(float(own.std()), rel=0.1)
    both = zip(network.parameters(), build(generator=1).parameters(), strict=True)
    assert not any(torch.equal(found, he) for found, he in both if found.ndim == 4)


@pytest.mark.parametrize("build", BUILDERS)
def test_draw_units__those_and_no_others(build: Callable[[Any], Classifier]) -> None:
    network, same = build(0), build(0)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    weight = network.head.weight
    for each in (network, same):
        draw_units(each, [2, 7], torch.Generator().manual_seed(3))
    assert network.head.weight is weight, "in place: an optimiser and a captured step know no other"
    changed = network.state_dict()
    others = [unit for unit in range(10) if unit not in (2, 7)]
    for name in changed:
        if name.startswith("head."):
            assert torch.equal(changed[name][others], before[name][others])
            assert changed[name][[2, 7]].ne(before[name][[2, 7]]).all()
            assert float(changed[name].abs().max()) <= 1 / math.sqrt(network.size)
        else:
            assert torch.equal(changed[name], before[name])
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in changed.items())


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("classes", lambda: resnet18(0)),
        ("width", lambda: resnet18(10, 0)),
        ("channels", lambda: small_net(10, 0)),
    ],
)
def test_nets__bad_sizes_name_the_argument(argument: str, call: Callable[[], Classifier]) -> None:
    with pytest.raises(ValueError, match=f"{argument} must be in 1"):
        call()


@pytest.mark.parametrize("build", [functools.partial(resnet18, 10, 8), functools.partial(small_net, 10)])
def test_nets__unknown_initialisation(build: Callable[..., Classifier]) -> None:
    with pytest.raises(ValueError, match="unknown initialisation 'tourch'; did you mean 'torch'"):
        build(initialisation="tourch")


# ---------------------------------------------------------------- the stem as a product of matrices


@pytest.mark.parametrize("channels", [1, 3, 4, 16])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 9), (1, 4)])
def test_as_product__is_the_convolution(channels: int, height: int, width: int) -> None:
    """Values and both gradients; 16 channels need no columns of zeros."""
    source = torch.Generator().manual_seed(0)
    images, weight = (
        torch.randn(shape, dtype=torch.float64, generator=source, requires_grad=True)
        for shape in ((4, channels, height, width), (6, channels, 3, 3))
    )
    found, expected = as_product(images, weight), functional.conv2d(images, weight, padding=1)
    assert found.shape == expected.shape == (4, 6, height, width)
    torch.testing.assert_close(found, expected)
    slope = torch.randn(expected.shape, dtype=torch.float64, generator=source)
    gradients = (torch.autograd.grad(maps, (images, weight), slope) for maps in (found, expected))
    for found_gradient, gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(found_gradient, gradient)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_as_product__gives_the_layout_of_the_tensor_cores(memory_format: torch.memory_format) -> None:
    """Whatever the layout of images and weight."""
    source = torch.Generator().manual_seed(0)
    images, weight = (torch.randn(shape, generator=source) for shape in ((2, 3, 8, 6), (5, 3, 3, 3)))
    maps = as_product(images.contiguous(memory_format=memory_format), weight.contiguous(memory_format=memory_format))
    assert maps.is_contiguous(memory_format=torch.channels_last)
    assert not maps.is_contiguous()
    torch.testing.assert_close(maps, functional.conv2d(images, weight, padding=1))


# ---------------------------------------------------------------- initialisation of other networks


def make_projector() -> nn.Sequential:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(400, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 50))


def test_initialise__a_projector_from_the_meta_device() -> None:
    network = make_projector()
    assert initialise(network, 3) is network
    state = network.state_dict()
    for layer, features in (("0", 400), ("3", 300)):
        bound = 1 / math.sqrt(features)
        for values in (state[f"{layer}.weight"], state[f"{layer}.bias"]):
            assert values.device.type == "cpu"
            assert float(values.abs().max()) <= bound
            assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.2)
            assert abs(float(values.mean())) < 0.3 * bound
    expected = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
    for name, value in expected.items():
        assert state[f"1.{name}"].eq(value).all()
    assert all(weight.requires_grad and weight.is_leaf for weight in network.parameters())


@pytest.mark.parametrize(("side", "stride"), [(6, 1), (6, 2), (7, 2)])
def test_point__as_a_product_like_a_convolution(side: int, stride: int) -> None:
    layer = initialise(Point(5, 8, 1, stride, bias=False), 0).double()
    images = torch.rand(3, 5, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)
    outcomes = []
    for way in (layer.as_product, layer):
        given = images.clone().requires_grad_()
        found = way(given)
        layer.zero_grad()
        (found * torch.linspace(-1, 1, found.numel()).double().view(found.shape)).sum().backward()
        assert layer.weight.grad is not None
        outcomes.append([found, given.grad, layer.weight.grad.clone()])
    torch.testing.assert_close(outcomes[0], outcomes[1])
    assert outcomes[0][0] is not None
    assert outcomes[0][0].is_contiguous(memory_format=torch.channels_last)


def test_initialise__forgets_what_a_network_has_learnt() -> None:
    """The same bits from the same seed, batch-norm's running statistics too."""
    network = initialise(make_projector(), 3)
    fresh = {name: values.clone() for name, values in network.state_dict().items()}
    network(torch.randn(8, 400, generator=torch.Generator().manual_seed(0)) + 5)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(1)
    again = initialise(network, 3).state_dict()
    assert all(torch.equal(values, fresh[name]) for name, values in again.items())


def test_initialise__draws_from_the_generator_alone_and_layer_by_layer() -> None:
    before, source = torch.get_rng_state(), torch.Generator().manual_seed(3)
    sources = (source, source, 3)
    first, second, again = (initialise(make_projector(), given).state_dict()["0.weight"] for given in sources)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
