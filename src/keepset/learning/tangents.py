"""The logits of a network and their derivative along a direction of its weights, from one forward.

The logits can be differentiated back to the weights as ever; the derivative comes without a gradient of its own.
Unlike the difference of two forwards, which is small, a derivative loses nothing in bfloat16.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from .norm import EPSILON, back, mean_and_variance
from .resnet import Block, as_product
from .step import logits_at

Pair = tuple[Tensor, Tensor]
"""Maps, and their derivative."""


@dataclass(frozen=True)
class Way:
    """Where in the space of weights, and which way from there."""

    weights: Mapping[str, Tensor]
    directions: Mapping[str, Tensor]
    """By name, of the weights that move."""
    steps: Mapping[str, Tensor]
    """How far each of them moves, a number each."""


def derivative(model: nn.Module, way: Way, images: Tensor, moves_statistics: bool = False) -> Pair:
    """Logits and derivative, of any network that torch can differentiate forwards, in the type of its weights.

    Nothing of the model changes, but for its running statistics where asked.
    """
    _load_forward_mode()
    # in torch's own derivative of batch-norm types mix under autocast
    with torch.autocast(images.device.type, enabled=False), forward_ad.dual_level():
        weights = dict(way.weights)
        for name, direction in way.directions.items():
            weight = weights[name]
            weights[name] = forward_ad.make_dual(weight, way.steps[name] * direction.to(weight))
        found = forward_ad.unpack_dual(logits_at(model, weights, images, moves_statistics))
        tangent = torch.zeros_like(found.primal) if found.tangent is None else found.tangent
        return found.primal, tangent.detach()


@functools.cache
def _load_forward_mode() -> None:
    """What torch loads the first time; its own code warns there of what torch calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._decomp.decompositions_for_jvp")


def resnet_derivative(model: nn.Module, way: Way, images: Tensor) -> Pair:
    """The same of a ResNet18 in the fewest kernels: maps and their derivative go through a convolution together.

    Computed in the type of the convolutions' weights; running statistics stay as they are.
    """
    weight, direction, step = _moving(way, "stem.0.weight")
    images = images.to(weight.dtype)
    pair = as_product(images, weight), step * as_product(images, direction)
    pair = _normalised(way, "stem.1", pair, rectified=True)
    for number, block in enumerate(cast(list[Block], model.blocks)):
        pair = _block(way, f"blocks.{number}", block, pair)
    maps, tangents = (each.mean((2, 3)) for each in pair)
    weight, direction, step = _moving(way, "head.weight")
    bias = way.weights["head.bias"].to(weight.dtype)
    with torch.no_grad():
        tangents = functional.linear(tangents, weight) + step * functional.linear(maps, direction)
    return functional.linear(maps, weight, bias), tangents


def _block(way: Way, name: str, block: Block, pair: Pair) -> Pair:
    around = pair
    if len(block.shortcut):
        around = _normalised(way, f"{name}.shortcut.1", _point(way, f"{name}.shortcut.0", pair, block))
    pair = _convolved(way, f"{name}.convolution1", pair, block.convolution1.stride)
    pair = _normalised(way, f"{name}.norm1", pair, rectified=True)
    pair = _convolved(way, f"{name}.convolution2", pair, block.convolution2.stride)
    return _normalised(way, f"{name}.norm2", pair, around, rectified=True)


def _moving(way: Way, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """A weight, its direction and its step, all in the weight's type."""
    weight = way.weights[name]
    return weight, way.directions[name].to(weight.dtype), way.steps[name].to(weight.dtype)


def _convolved(way: Way, name: str, pair: Pair, stride: tuple[int, ...]) -> Pair:
    found: Pair = _Convolved.apply(*pair, *_moving(way, f"{name}.weight"), list(stride))  # type: ignore[no-untyped-call]
    return found


def _point(way: Way, name: str, pair: Pair, block: Block) -> Pair:
    """A 1×1 convolution as a product of matrices."""
    down, across = block.convolution1.stride
    maps, tangents = (each[:, :, ::down, ::across].permute(0, 2, 3, 1) for each in pair)
    weight, direction, step = _moving(way, f"{name}.weight")
    found = functional.linear(maps, weight.flatten(1))
    with torch.no_grad():
        moved = functional.linear(tangents, weight.flatten(1)) + step * functional.linear(maps, direction.flatten(1))
    return found.permute(0, 3, 1, 2), moved.permute(0, 3, 1, 2)


def _normalised(way: Way, name: str, pair: Pair, beside: Pair | None = None, rectified: bool = False) -> Pair:
    weight, bias = way.weights[f"{name}.weight"], way.weights[f"{name}.bias"]
    found: Pair = _Normalised.apply(*pair, weight, bias, *(beside or (None, None)), rectified)  # type: ignore[no-untyped-call]
    return found


class _Convolved(torch.autograd.Function):
    """(maps, tangents, weight, direction, step, stride) of a 3×3 convolution -> maps and tangents."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, tangents: Tensor, weight: Tensor, direction: Tensor, step: Tensor, stride: list[int]
    ) -> Pair:
        both = functional.conv2d(torch.cat([maps, tangents]), weight, None, stride, 1)
        found, moved = both[: len(maps)], both[len(maps) :]
        moved = moved + step * functional.conv2d(maps, direction, None, stride, 1)
        ctx.save_for_backward(maps, weight)
        ctx.stride = stride
        ctx.mark_non_differentiable(moved)
        return found, moved

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight = ctx.saved_tensors
        to_maps, to_weight, _ = torch.ops.aten.convolution_backward(
            slopes, maps, weight, None, ctx.stride, [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
        )
        return to_maps, None, to_weight, None, None, None


class _Normalised(torch.autograd.Function):
    """(maps, tangents, weight, bias, maps and tangents beside, rectified) -> maps and tangents normalised."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        tangents: Tensor,
        weight: Tensor,
        bias: Tensor,
        beside: Tensor | None,
        tangents_beside: Tensor | None,
        rectified: bool,
    ) -> Pair:
        wide, moving = (each.to(torch.promote_types(each.dtype, torch.float32)) for each in (maps, tangents))
        mean, variance = mean_and_variance(wide[None])
        inverse = torch.rsqrt(variance + EPSILON)
        drift = moving.mean((0, 2, 3))
        spread = ((wide * moving).mean((0, 2, 3)) - mean[0] * drift) * inverse[0]  # of the tangents along the maps
        normal = (wide - _wide(mean[0])) * _wide(inverse[0])
        moved = _wide(weight * inverse[0]) * (moving - _wide(drift) - normal * _wide(spread))
        found = normal * _wide(weight) + _wide(bias)
        if beside is not None and tangents_beside is not None:
            found, moved = found + beside, moved + tangents_beside
        if rectified:
            found, moved = found.relu(), torch.where(found > 0, moved, 0)
        found, moved = found.to(maps.dtype), moved.to(maps.dtype)
        ctx.save_for_backward(maps, weight, mean, inverse, found if rectified else None)
        ctx.beside = beside is not None
        ctx.mark_non_differentiable(moved)
        return found, moved

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        to_maps, to_weight, to_bias, to_beside = back(slopes, *ctx.saved_tensors)
        return to_maps, None, to_weight, to_bias, to_beside if ctx.beside else None, None, None


def _wide(statistic: Tensor) -> Tensor:
    """(channels,) beside (b, channels, height, width)."""
    return statistic[:, None, None]
