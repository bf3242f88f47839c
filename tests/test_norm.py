"""Batch-norm over a batch in parts: as if each part had come by itself, for a layer and for whole networks."""

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from keepset.learning.norm import Norm
from keepset.learning.resnet import Classifier, resnet18, small_net
from keepset.learning.step import apart

CHANNELS = 5
Forward = Callable[[Tensor], Tensor]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


Layer = TypeVar("Layer", bound=nn.Module)


def changed(layer: Layer, dtype: torch.dtype = torch.float64, seed: int = 0) -> Layer:
    """With weights and statistics that are not the initial ones."""
    source = seeded(seed)
    for name in ("weight", "bias", "running_mean", "running_var"):
        layer.state_dict()[name].copy_(torch.rand(CHANNELS, generator=source) + 0.5)
    return layer.to(dtype)


def make_norm(dtype: torch.dtype = torch.float64, rectified: bool = False) -> Norm:
    return changed(Norm(CHANNELS, rectified=rectified), dtype)


def make_plain(dtype: torch.dtype = torch.float64) -> nn.BatchNorm2d:
    return changed(nn.BatchNorm2d(CHANNELS), dtype)


def make_maps(count: int, side: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    """Each image brighter than the one before, so that parts have means of their own."""
    drawn = torch.randn(count, CHANNELS, side, side, generator=seeded(1), dtype=torch.float64)
    return (drawn + torch.arange(count)[:, None, None, None]).to(dtype)


def traces(layer: nn.Module, forward: Forward, maps: Tensor) -> dict[str, Tensor]:
    """Outputs, all gradients and all buffers of one pass; the loss weighs every number differently."""
    maps = maps.detach().clone().requires_grad_()
    outputs = forward(maps)
    weights = torch.randn(outputs.shape, generator=seeded(2), dtype=torch.float64).to(outputs.dtype)
    (outputs * weights).sum().backward()
    statistics = {name: value for name, value in layer.named_buffers() if "running" in name}
    found = {"outputs": outputs.detach(), "maps": maps.grad, **statistics}
    found |= {f"{name}.grad": weight.grad for name, weight in layer.named_parameters()}
    return {name: tensor.clone() for name, tensor in found.items() if tensor is not None}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], rtol: float, atol: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close({name: tensor}, {name: expected[name]}, rtol=rtol, atol=atol)


def part_by_part(layer: nn.Module, parts: Sequence[int]) -> Forward:
    return lambda maps: torch.cat([layer(part) for part in maps.split(list(parts))])


# ---------------------------------------------------------------- the layer


@pytest.mark.parametrize("side", [4, 1])
@pytest.mark.parametrize("parts", [(6, 6), (2, 7, 3), (10, 2)], ids=str)
def test_norm__parts_as_a_forward_each(parts: tuple[int, ...], side: int) -> None:
    layer, plain, maps = make_norm(), make_plain(), make_maps(12, side)
    found = traces(layer, lambda given: layer(given, parts), maps)
    expected = traces(plain, part_by_part(plain, parts), maps)
    assert_close(found, expected, rtol=1e-12, atol=1e-12)
    whole = make_plain()
    assert not torch.allclose(found["outputs"], whole(maps)), "the parts must matter"


@pytest.mark.parametrize("parts", [(), (12,)], ids=str)
def test_norm__one_part_is_plain_batch_norm_to_the_bit(parts: tuple[int, ...]) -> None:
    layer, plain, maps = make_norm(), make_plain(), make_maps(12)
    assert_close(traces(layer, lambda given: layer(given, parts), maps), traces(plain, plain, maps), rtol=0, atol=0)


def test_norm__in_eval_mode_parts_change_nothing() -> None:
    layer, plain, maps = make_norm().eval(), make_plain().eval(), make_maps(12)
    found = traces(layer, lambda given: layer(given, (5, 7)), maps)
    assert_close(found, traces(plain, plain, maps), rtol=0, atol=0)


def test_norm__the_parts_follow_in_their_order() -> None:
    """The later part weighs more in the running mean."""
    layer = make_norm()
    before = layer.get_buffer("running_mean").clone()
    first, second = torch.zeros(3, CHANNELS, 2, 2).double(), torch.ones(3, CHANNELS, 2, 2).double()
    layer(torch.cat([first, second]), (3, 3))
    torch.testing.assert_close(layer.get_buffer("running_mean"), 0.9 * (0.9 * before) + 0.1)


def test_norm__of_several_runs_in_eval_mode_each_as_by_itself() -> None:
    """Every run with weights and statistics of its own, before a ReLU and beside other maps."""
    runs, maps = [changed(nn.BatchNorm2d(CHANNELS), seed=seed).eval() for seed in range(3)], make_maps(12)
    layer = Norm(CHANNELS, rectified=True).double().eval()
    for name in ("weight", "bias"):
        setattr(layer, name, nn.Parameter(torch.stack([run.get_parameter(name).detach() for run in runs])))
    for name in ("running_mean", "running_var"):
        setattr(layer, name, torch.stack([run.get_buffer(name) for run in runs]))
    beside = -10 * make_maps(12).sin()
    found = traces(layer, lambda given: layer(given, (2, 2), beside), maps)
    together = nn.ModuleList(runs)
    pieces = [(run, beside.split(4)[number]) for number, run in enumerate(runs)]
    expected = traces(
        together,
        lambda given: torch.cat([(run(p) + b).relu() for (run, b), p in zip(pieces, given.split(4), strict=True)]),
        maps,
    )
    assert 0.1 < (found["outputs"] > 0).double().mean() < 0.9
    for name in ("outputs", "maps"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-12)
    for name in ("weight.grad", "bias.grad", "running_mean", "running_var"):
        each = torch.stack([expected[f"{number}.{name}"] for number in range(3)])
        torch.testing.assert_close(found[name], each, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- equal parts at once


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels-last"])
@pytest.mark.parametrize(("count", "side"), [(2, 4), (3, 4), (2, 1), (6, 3)])
def test_at_once__as_part_by_part(count: int, side: int, layout: torch.memory_format) -> None:
    layer, plain = make_norm(torch.float32), make_plain(torch.float32)
    maps = make_maps(12, side, torch.float32)
    found = traces(layer, lambda given: layer.at_once(given.contiguous(memory_format=layout), count), maps)
    expected = traces(plain, part_by_part(plain, [12 // count] * count), maps)
    assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_at_once__keeps_the_layout_of_the_tensor_cores() -> None:
    layer, maps = make_norm(torch.float32), make_maps(12, 4, torch.float32)
    assert layer.at_once(maps.contiguous(memory_format=torch.channels_last), 2).is_contiguous(
        memory_format=torch.channels_last
    )


def test_at_once__of_bfloat16_has_statistics_in_float32() -> None:
    layer, plain = make_norm(torch.float32), make_plain(torch.float32)
    maps = make_maps(12).bfloat16()
    found = layer.at_once(maps, 2)
    assert found.dtype == torch.bfloat16
    expected = torch.cat([plain(part.float()) for part in maps.split(6)])
    torch.testing.assert_close(found.float(), expected, rtol=2**-8, atol=1e-5)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(layer.get_buffer(name), plain.get_buffer(name), rtol=1e-5, atol=1e-6)


def test_at_once__the_statistics_have_no_gradient() -> None:
    layer, maps = make_norm(torch.float32), make_maps(12, 4, torch.float32).requires_grad_()
    layer.at_once(maps, 2)
    assert not layer.get_buffer("running_mean").requires_grad


@pytest.mark.parametrize("with_beside", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize("count", [1, 3])
def test_at_once__with_what_follows_it(count: int, with_beside: bool) -> None:
    """Maps added and a ReLU, against the same as separate operations; the gradient of what is added too."""
    layer, plain, maps = make_norm(rectified=True), make_plain(), make_maps(12)
    outcomes = []
    for at_once in (True, False):
        beside = torch.randn(maps.shape, generator=seeded(4), dtype=torch.float64).requires_grad_()
        added = beside if with_beside else None

        def forward(given: Tensor, at_once: bool = at_once, added: Tensor | None = added) -> Tensor:
            if at_once:
                return layer.at_once(given, count, added)
            normal = part_by_part(plain, [12 // count] * count)(given)
            return nn.functional.relu(normal if added is None else normal + added)

        found = traces(layer if at_once else plain, forward, maps)
        assert found["outputs"].eq(0).any()
        outcomes.append(found | ({"beside": beside.grad} if beside.grad is not None else {}))
    assert_close(outcomes[0], outcomes[1], rtol=1e-9, atol=1e-9)
    assert ("beside" in outcomes[0]) == with_beside


@pytest.mark.parametrize("with_beside", [False, True], ids=["alone", "beside"])
def test_norm__with_what_follows_it_to_the_bit(with_beside: bool) -> None:
    layer, plain, maps = make_norm(rectified=True), make_plain(), make_maps(12)
    beside = torch.randn(maps.shape, generator=seeded(4), dtype=torch.float64) if with_beside else None
    found = layer(maps, (), beside)
    assert torch.equal(found, nn.functional.relu(plain(maps) if beside is None else plain(maps) + beside))


def test_at_once__a_part_of_one_value_is_refused() -> None:
    with pytest.raises(ValueError, match="more than one value a channel"):
        make_norm().at_once(make_maps(2, 1), 2)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_at_once__a_compiler_gets_one_graph_of_it() -> None:
    """As on a GPU: the same values and gradients, without a break in the graph."""
    layer, plain, maps = make_norm(rectified=True), make_norm(rectified=True), make_maps(12)
    whole = torch.compile(lambda given: layer.at_once(given, 2), backend="aot_eager", fullgraph=True)
    found = traces(layer, whole, maps)
    assert_close(found, traces(plain, lambda given: plain(given, (6, 6)), maps), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- whole networks


def networks() -> dict[str, Classifier]:
    """In float64, with statistics that are not the initial ones; 8 × 8 images leave the ResNet maps of 1 × 1."""
    found: dict[str, Classifier] = {"small": small_net(4, generator=0), "resnet": resnet18(4, 4, 1, generator=0)}
    for network in found.values():
        network.double()(torch.rand(9, 1, 8, 8, generator=seeded(3), dtype=torch.float64))
    return found


@pytest.mark.parametrize("parts", [(6, 6), (3, 9), (2, 6, 4)], ids=str)
@pytest.mark.parametrize("name", ["small", "resnet"])
def test_apart__a_network_of_ours_as_by_a_forward_each(name: str, parts: tuple[int, ...]) -> None:
    network, images = networks()[name], torch.rand(12, 1, 8, 8, generator=seeded(4), dtype=torch.float64)
    plain = copy.deepcopy(network)
    found = traces(network, lambda given: torch.cat(apart(network, given.split(parts))), images)
    assert_close(found, traces(plain, part_by_part(plain, parts), images), rtol=1e-8, atol=1e-10)
    assert not torch.allclose(found["outputs"], plain(images)), "the parts must matter"


def test_apart__logits_have_the_sizes_of_their_batches() -> None:
    network = networks()["small"]
    found = apart(network, [torch.rand(count, 1, 8, 8).double() for count in (3, 5)])
    assert [len(logits) for logits in found] == [3, 5]


def test_apart__a_network_of_ones_own_has_a_forward_each() -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 4)).double()
    images = torch.rand(12, 1, 8, 8, generator=seeded(4), dtype=torch.float64)
    plain, calls = copy.deepcopy(network), list[int]()
    network.register_forward_hook(lambda _module, given, _found: calls.append(len(given[0])))
    found = traces(network, lambda given: torch.cat(apart(network, given.split([3, 9]))), images)
    assert_close(found, traces(plain, part_by_part(plain, [3, 9]), images), rtol=0, atol=0)
    assert calls == [3, 9]
