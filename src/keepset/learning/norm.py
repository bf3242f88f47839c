"""Batch-norm over a batch of several parts, each with statistics of its own, with what usually follows it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Parts = tuple[int, ...]
"""Sizes of the parts of a batch, one after the other; empty: it is one."""

EPSILON = 1e-5
SHARE = 0.1  # of a batch in the running statistics
OVER = (1, 3, 4)  # of (parts, images, channels, height, width): all that a statistic is taken over


class Norm(nn.Module):
    """Batch-norm of maps, but a batch of several parts is normalised as if each had come by itself, in their order.

    rectified: with a ReLU at the end. Weights and statistics may be those of several runs, (runs, channels): then the
    maps lie run after run, and each run's are in those parts.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, rectified: bool = False) -> None:
        super().__init__()
        self.rectified = rectified
        self.weight, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_var", torch.empty(channels))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for tensor, value in ((self.weight, 1), (self.bias, 0), (self.running_mean, 0), (self.running_var, 1)):
            tensor.fill_(value)

    def forward(self, maps: Tensor, parts: Parts = (), beside: Tensor | None = None) -> Tensor:
        """(b, channels, height, width), the parts' sizes adding up to b; beside: maps to add before the ReLU."""
        if self.weight.ndim == 2:  # of several runs
            if not self.training:
                return self._of_several(maps, beside)
            return self.at_once(maps, max(len(parts), 1) * len(self.weight), beside)
        if self.training and maps.is_cuda and torch.compiler.is_compiling() and len(set(parts)) < 2:
            return self.at_once(maps, max(len(parts), 1), beside)
        pieces = maps.split(parts) if self.training and len(parts) > 1 else (maps,)
        normal = [self._plain(piece) for piece in pieces]
        found = torch.cat(normal) if len(normal) > 1 else normal[0]
        found = found if beside is None else found + beside
        return functional.relu(found) if self.rectified else found

    def _plain(self, maps: Tensor) -> Tensor:
        statistics = self.running_mean, self.running_var
        return functional.batch_norm(maps, *statistics, self.weight, self.bias, self.training, SHARE, EPSILON)

    def _of_several(self, maps: Tensor, beside: Tensor | None) -> Tensor:
        """Several runs, each by its running statistics."""
        scale = self.weight * torch.rsqrt(self.running_var + EPSILON)
        found = _pieces(maps, len(scale)) * _wide(scale) + _wide(self.bias - self.running_mean * scale)
        found = found if beside is None else found + _pieces(beside, len(scale))
        found = functional.relu(found) if self.rectified else found
        return found.to(maps.dtype).flatten(0, 1)

    def at_once(self, maps: Tensor, count: int, beside: Tensor | None = None) -> Tensor:
        """`count` equal parts in one go, for a compiler to fuse: the fewest kernels, each map read as seldom as can be.

        A step of 512 images is half batch-norm by time, and that is moving maps to and from memory.
        """
        over = maps.numel() // maps.shape[1] // count  # numbers behind each statistic
        if over < 2:
            raise ValueError(f"a part needs more than one value a channel in training, got {count} of {maps.shape}")
        weight, bias = (_by_part(each, count) for each in (self.weight, self.bias))
        found, mean, variance = _Normalised.apply(maps, weight, bias, beside, count, self.rectified)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self.running_mean.copy_(_followed(self.running_mean, mean))
            self.running_var.copy_(_followed(self.running_var, variance * (over / (over - 1))))
        result: Tensor = found
        return result


def _by_part(weight: Tensor, count: int) -> Tensor:
    """(channels,) as it is; (runs, channels), of several runs, repeated for each run's parts."""
    if weight.ndim == 1:
        return weight
    return weight[:, None].expand(-1, count // len(weight), -1).reshape(count, -1)


def _followed(running: Tensor, batches: Tensor) -> Tensor:
    """A running statistic, part after part, as so many forwards would move it; of several runs, each by its own."""
    if running.ndim == 2:
        batches = batches.unflatten(0, (len(running), -1)).transpose(0, 1)
    for batch in batches:
        running = running.lerp(batch.to(running), SHARE)
    return running


class _Normalised(torch.autograd.Function):
    """(maps, weight, bias, beside, count, rectified) -> the maps normalised, (count, channels) mean and variance.

    weight and bias: (channels,), or (count, channels) where they are not the same for all parts.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, beside: Tensor | None, count: int, rectified: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        pieces = _pieces(maps, count)
        mean = pieces.mean(OVER)
        # not by torch.var_mean: a compiler makes of it a running variance, several operations for each number
        variance = (pieces.square().mean(OVER) - mean.square()).clamp_min(0)
        inverse = torch.rsqrt(variance + EPSILON)
        scale = weight * inverse
        normal = pieces * _wide(scale) + _wide(bias - mean * scale)
        if beside is not None:
            normal = normal + _pieces(beside, count)
        if rectified:
            normal = normal.relu()
        found = normal.to(maps.dtype).flatten(0, 1)
        ctx.save_for_backward(maps, weight, mean, inverse, found if rectified else None)
        ctx.beside = beside is not None
        ctx.count = count
        ctx.mark_non_differentiable(mean, variance)
        return found, mean, variance

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, mean, inverse, found = ctx.saved_tensors
        if found is not None:  # in the slopes' own type: where a compiler writes it to memory, half the bytes
            slopes = torch.where(found > 0, slopes, 0)
        pieces = _pieces(maps, ctx.count)
        slope = _pieces(slopes, ctx.count)
        normal = (pieces - _wide(mean)) * _wide(inverse)
        by_bias, by_weight = slope.sum(OVER), (slope * normal).sum(OVER)
        over = pieces[0].numel() // pieces.shape[2]
        moved = _wide(weight * inverse) * (slope - (_wide(by_bias) + normal * _wide(by_weight)) / over)
        back = slopes if ctx.beside else None
        if weight.ndim == 1:
            by_weight, by_bias = by_weight.sum(0), by_bias.sum(0)
        return moved.to(maps.dtype).flatten(0, 1), by_weight, by_bias, back, None, None


def _pieces(maps: Tensor, count: int) -> Tensor:
    """(count, b / count, channels, height, width), in float32 or better."""
    found: Tensor = maps.unflatten(0, (count, -1))
    return found.to(torch.promote_types(maps.dtype, torch.float32))


def _wide(statistic: Tensor) -> Tensor:
    """(count, channels) beside (count, b, channels, height, width)."""
    return statistic[:, None, :, None, None]
