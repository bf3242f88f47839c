"""Layers of several runs at once: weights with one dimension more, of runs, over maps that lie run after run.

A GPU is not filled by the 20 images of a step. Eight runs have 160, and each layer of theirs is one kernel instead of
eight. No number of one run is ever added to one of another.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

MANY = 5120  # places of a run from which on the gradient of a weight is summed in parts, to fill a GPU
PARTS = 4
FEW = 512  # places of a run for which smaller tiles fill a GPU better
CHANNELS = 32  # a multiple of which the tiles can take
INTERPRETED = False  # whether CPUs go the way of the tiles too, in Triton's interpreter


def product(maps: Tensor, weight: Tensor) -> Tensor:
    """(runs · b, …, c) and (runs, k, c) -> (runs · b, …, k): a linear layer of each run."""
    runs, kept, channels = weight.shape
    if not maps.is_cuda:  # where bmm rounds by how a run's part lies in memory
        pieces = zip(maps.unflatten(0, (runs, -1)), weight, strict=True)
        return torch.cat([functional.linear(piece, own) for piece, own in pieces])
    return torch.bmm(maps.reshape(runs, -1, channels), weight.mT).view(*maps.shape[:-1], kept)


def linear(features: Tensor, layer: nn.Module) -> Tensor:
    """(runs · b, d) and a linear layer of weight (runs, k, d) and bias (runs, k) -> (runs, b, k)."""
    weight, bias = (layer.get_parameter(name) for name in ("weight", "bias"))
    found: Tensor = product(features, weight).unflatten(0, (len(weight), -1))
    return found + bias[:, None]


def convolution(maps: Tensor, weight: Tensor, stride: int) -> Tensor:
    """(runs · b, c, h, w) and (runs, k, c, 3, 3), both channels last -> (runs · b, k, h / stride, w / stride).

    Padded by one, in the type of the maps.
    """
    found: Tensor = _Convolved.apply(  # type: ignore[no-untyped-call]
        maps.permute(0, 2, 3, 1), weight.permute(0, 1, 3, 4, 2), stride
    )
    return found.permute(0, 3, 1, 2)


class _Convolved(torch.autograd.Function):
    """(runs · b, h, w, c) and (runs, k, 3, 3, c) -> (runs · b, h / stride, w / stride, k)."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int) -> Tensor:
        narrow = weight.to(maps.dtype)
        ctx.save_for_backward(maps, narrow)
        ctx.stride = stride
        found: Tensor = convolved(maps, narrow, stride)
        return found

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        maps, weight = ctx.saved_tensors
        return to_maps(slopes, weight, ctx.stride), to_weight(slopes, maps, weight.shape[0], ctx.stride), None


# ---------------------------------------------------------------- opaque to a compiler


@torch.library.custom_op("keepset::stacked_convolved", mutates_args=())
def convolved(maps: Tensor, weight: Tensor, stride: int) -> Tensor:
    """See `_Convolved`."""
    maps, weight = maps.contiguous(), weight.contiguous()
    shape = _shape(maps, weight.shape[0], weight.shape[1], stride)
    out = _like(maps, weight.shape[1], 1 / stride)
    if not _tiled(maps):
        for piece, found, own in _by_run(weight, maps, out):
            found.copy_(_last(functional.conv2d(_first(piece), _first(own), None, stride, 1)))
        return out
    tile = _tile(shape, weight.shape[1], maps)
    _tiles().maps_tile[(*_grid(shape, weight.shape[1], tile), len(weight))](maps, weight, out, **shape, **tile)
    return out


@torch.library.custom_op("keepset::stacked_to_maps", mutates_args=())
def to_maps(slopes: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The gradient of the maps."""
    slopes, weight = slopes.contiguous(), weight.contiguous()
    channels = weight.shape[4]
    out = _like(slopes, channels, stride)
    if not _tiled(slopes):
        for piece, found, own in _by_run(weight, slopes, out):
            back = _back(piece, found, own, stride, [True, False, False])[0]
            found.copy_(_last(back))
        return out
    shape = _shape(out, len(weight), weight.shape[1], stride)
    tile = _tile(shape, channels, slopes)
    for row in range(stride):
        for column in range(stride):
            odd = {"ODD_ROW": row, "ODD_COLUMN": column}
            launch = _tiles().back_tile[(*_grid(shape, channels, tile), len(weight))]
            launch(slopes, weight, out, **shape, **odd, **tile)
    return out


@torch.library.custom_op("keepset::stacked_to_weight", mutates_args=())
def to_weight(slopes: Tensor, maps: Tensor, runs: int, stride: int) -> Tensor:
    """The gradient of the weight, in float32 or better."""
    slopes, maps = slopes.contiguous(), maps.contiguous()
    kept, channels = slopes.shape[3], maps.shape[3]
    weight = _weight_like(slopes, maps, runs)
    if not _tiled(maps):
        for piece, slope, own in _by_run(weight, maps, slopes):
            own.copy_(_last(_back(slope, piece, own.to(maps.dtype), stride, [False, True, False])[1]))
        return weight
    shape = _shape(maps, runs, kept, stride)
    across, down = _power(channels), _power(kept)
    tile = {"M": down, "N": across, "num_warps": 4}
    tile |= {"STEP": 32, "num_stages": 4} if across == 128 else {"STEP": 64, "num_stages": 3}
    split = PARTS if _places(shape) >= MANY else 1
    parts = weight.new_empty(split, *weight.shape)
    grid = (kept // down, 9 * channels // across, runs * split)
    _tiles().weight_tile[grid](maps, slopes, parts, runs, **shape, **tile, SPLIT=split)
    return parts.sum(0) if split > 1 else parts[0]


@convolved.register_fake
def _(maps: Tensor, weight: Tensor, stride: int) -> Tensor:
    return _like(maps, weight.shape[1], 1 / stride)


@to_maps.register_fake
def _(slopes: Tensor, weight: Tensor, stride: int) -> Tensor:
    return _like(slopes, weight.shape[4], stride)


@to_weight.register_fake
def _(slopes: Tensor, maps: Tensor, runs: int, _stride: int) -> Tensor:
    return _weight_like(slopes, maps, runs)


# ---------------------------------------------------------------- shapes


def _like(maps: Tensor, channels: int, scale: float) -> Tensor:
    """Empty maps of so many channels, so many times as high and wide."""
    count, height, width, _ = maps.shape
    return maps.new_empty(count, int(height * scale), int(width * scale), channels)


def _weight_like(slopes: Tensor, maps: Tensor, runs: int) -> Tensor:
    dtype = torch.promote_types(maps.dtype, torch.float32)
    return maps.new_empty(runs, slopes.shape[3], 3, 3, maps.shape[3], dtype=dtype)


def _shape(maps: Tensor, runs: int, kept: int, stride: int) -> dict[str, int]:
    """Of one run, as the tiles want to know it; `maps` are what goes into the convolution."""
    count, height, width, channels = maps.shape
    names = ("IMAGES", "HEIGHT", "WIDTH", "CHANNELS", "KEPT", "STRIDE")
    return dict(zip(names, (count // runs, height, width, channels, kept, stride), strict=True))


def _places(shape: dict[str, int]) -> int:
    """Of all maps of a run after the convolution."""
    return shape["IMAGES"] * (shape["HEIGHT"] // shape["STRIDE"]) * (shape["WIDTH"] // shape["STRIDE"])


def _tile(shape: dict[str, int], columns: int, maps: Tensor) -> dict[str, int]:
    """As measured on an H200 with eight runs of a ResNet-18 and 20 images each; it changes how numbers are rounded."""
    rows, stages = (64, 4) if _places(shape) < FEW else (128, 3)
    step = min(128 // maps.element_size(), _power(maps.shape[3]))  # of 128 bytes at most, so that stages have room
    return {"M": rows, "N": _power(columns), "STEP": step, "num_warps": 4, "num_stages": stages}


def _grid(shape: dict[str, int], columns: int, tile: dict[str, int]) -> tuple[int, int]:
    return -(-_places(shape) // tile["M"]), columns // tile["N"]


def _power(number: int) -> int:
    """The largest power of two that divides it, up to 128."""
    return min(number & -number, 128)


# ---------------------------------------------------------------- where there are no tiles


def _tiled(maps: Tensor) -> bool:
    return maps.is_cuda or INTERPRETED


def _tiles() -> Any:
    """The functions in Triton; they are loaded, and compiled, only when they are called for."""
    return importlib.import_module(".stacked_tiles", __package__)


def _by_run(weight: Tensor, *maps: Tensor) -> Any:
    """Each run's part of the maps, and its weight."""
    return zip(*(each.unflatten(0, (len(weight), -1)) for each in maps), weight, strict=True)


def _first(maps: Tensor) -> Tensor:
    """Channels first, by name; in memory they stay last."""
    return maps.permute(0, 3, 1, 2)


def _last(maps: Tensor) -> Tensor:
    return maps.permute(0, 2, 3, 1)


def _back(slopes: Tensor, maps: Tensor, weight: Tensor, stride: int, wanted: list[bool]) -> Any:
    """Gradients of maps, weight and bias of one run, those that are wanted; all given channels last."""
    given = _first(slopes), _first(maps), _first(weight)
    sides = [stride, stride], [1, 1], [1, 1]
    return torch.ops.aten.convolution_backward(*given, None, *sides, False, [0, 0], 1, wanted)
