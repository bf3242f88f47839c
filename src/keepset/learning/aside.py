"""Gradients of convolutions' weights taken on a stream of their own, beside everything else.

Going back through a network, what a layer gives to the one before it is waited for; the gradients of the weights are
not, until the optimiser reads them. The former is half memory traffic (batch-norm), the latter is products: together
they keep more of a GPU busy. Whoever sets a network's gradients aside joins them before one is read.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from . import stacked

# Options of the compiler: no memory is used again that the side stream may still be reading.
KEPT = {"allow_buffer_reuse": False, "inplace_buffers": False}

_open: set[torch.cuda.Stream] = set()  # side streams that are not joined yet
_read: list[Tensor] = []  # kept until they have read it


class Convolution(nn.Conv2d):
    """A convolution without bias. With `aside`, the gradient of its weight is taken on the side stream.

    Its weight may be that of several runs.
    """

    aside = False

    def forward(self, maps: Tensor) -> Tensor:
        if self.weight.ndim == 5:
            return stacked.convolution(maps, self.weight, self.stride[0])
        if not self.aside:
            return super().forward(maps)
        found: Tensor = _Convolved.apply(maps, self.weight, list(self.stride), list(self.padding))  # type: ignore[no-untyped-call]
        return found


def set_aside(network: nn.Module) -> None:
    """From now on the gradients of its convolutions' weights are there only after `join`."""
    for layer in network.modules():
        if isinstance(layer, Convolution):
            layer.aside = True


def join() -> None:
    """Wait, on the current stream, for all gradients that were taken aside."""
    for stream in _open:
        torch.cuda.current_stream(stream.device).wait_stream(stream)
    _open.clear()
    _read.clear()


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class _Convolved(torch.autograd.Function):
    """(maps, weight, stride, padding) -> maps, in the type of the maps."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
        narrow = weight.to(maps.dtype)
        ctx.save_for_backward(maps, narrow)
        ctx.stride, ctx.padding = stride, padding
        return torch.nn.functional.conv2d(maps, narrow, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor, None, None]:
        maps, weight = ctx.saved_tensors
        to_maps = _back(slopes, maps, weight, ctx.stride, ctx.padding, [True, False, False])[0]
        return to_maps, weight_slopes(slopes, maps, weight, ctx.stride, ctx.padding), None, None


def _back(
    slopes: Tensor, maps: Tensor, weight: Tensor, stride: list[int], padding: list[int], wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of maps, weight and bias, those that are wanted."""
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        slopes, maps, weight, None, stride, padding, [1, 1], False, [0, 0], 1, wanted
    )
    return found


@torch.library.custom_op("keepset::weight_slopes", mutates_args=())
def weight_slopes(slopes: Tensor, maps: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    """The gradient of the weight in float32; on a GPU it is there after `join`. Opaque to a compiler."""
    if not slopes.is_cuda:
        return _to_weight(slopes, maps, weight, stride, padding)
    aside = _stream(slopes.device)
    aside.wait_stream(torch.cuda.current_stream(slopes.device))
    _open.add(aside)
    _read.extend((slopes, maps, weight))
    with torch.cuda.stream(aside):
        return _to_weight(slopes, maps, weight, stride, padding)


@weight_slopes.register_fake
def _(_slopes: Tensor, _maps: Tensor, weight: Tensor, *_: list[int]) -> Tensor:
    return torch.empty_like(weight, dtype=torch.float32)


def _to_weight(slopes: Tensor, maps: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    found = _back(slopes, maps, weight, stride, padding, [False, True, False])[1]
    return torch.empty_like(weight, dtype=torch.float32).copy_(found)  # laid out as the weight is
