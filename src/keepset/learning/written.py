"""A ResNet18's derivative along a direction of its weights, and the way back, written out: in the fewest kernels.

Maps and their derivative go through the network as one batch, the maps first; back go gradients of the maps alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from .norm import EPSILON, back, mean_and_variance
from .resnet import Block, as_product, patches
from .tangents import Way

Pair = tuple[Tensor, Tensor]
"""Maps, and their derivative."""
Back = Callable[[Tensor], Tensor]


class Written:
    """One forward; then, once, `back`. All in the type of the weights of two dimensions or more."""

    def __init__(self, model: nn.Module, way: Way, images: Tensor) -> None:
        self.way, self._half = way, len(images)
        self.slopes: dict[str, Tensor] = {}
        self._backs: list[Back] = []
        both = self._stem(images)
        for number, block in enumerate(cast(nn.Sequential, model.blocks)):
            both, one = self._block(f"blocks.{number}", cast(Block, block), both)
            self._backs.append(one)
        self._last, self._features = both, both.mean((2, 3))
        weight, direction, step = self._moving("head.weight")
        moved = functional.linear(self._features, weight)
        self.logits = moved[: self._half] + way.weights["head.bias"]
        self.derivative = moved[self._half :] + step * functional.linear(self._features[: self._half], direction)

    def back(self, slopes: Tensor) -> dict[str, Tensor]:
        """The gradients of the weights that move, from those of the logits."""
        weight = self.way.weights["head.weight"]
        slopes = slopes.to(weight.dtype)
        self.slopes["head.weight"] = slopes.T @ self._features[: self._half]
        shape = self._last[: self._half].shape
        slopes = ((slopes @ weight) / (shape[2] * shape[3]))[:, :, None, None].expand(shape)
        for one in reversed(self._backs):
            slopes = one(slopes)
        self._stem_back(slopes)
        return {name: self.slopes[name] for name in self.way.directions}

    def _moving(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """A weight, its direction and its step, all in the weight's type."""
        weight = self.way.weights[name]
        return weight, self.way.directions[name].to(weight.dtype), self.way.steps[name].to(weight.dtype)

    def _stem(self, images: Tensor) -> Tensor:
        weight, direction, step = self._moving("stem.0.weight")
        self._images = images.to(weight.dtype)
        maps, tangents = as_product(self._images, torch.cat([weight, direction])).chunk(2, dim=1)
        both, self._stem_norm = self._normalised("stem.1", (maps, step * tangents), rectified=True)
        return both

    def _stem_back(self, slopes: Tensor) -> None:
        slopes, _ = self._stem_norm(slopes)
        rows = slopes.permute(0, 2, 3, 1).flatten(1, 2)  # (b, h · w, k)
        found = torch.bmm(patches(self._images).transpose(1, 2), rows).sum(0)
        weight = self.way.weights["stem.0.weight"]
        taps = weight[0].numel()  # the columns beyond are zeros
        self.slopes["stem.0.weight"] = found[:taps].view(3, 3, -1, len(weight)).permute(3, 2, 0, 1)

    def _block(self, name: str, block: Block, both: Tensor) -> tuple[Tensor, Back]:
        around, around_back = both, _same
        stride = block.convolution1.stride[0]
        if len(block.shortcut):
            pair, point_back = self._point(f"{name}.shortcut.0.weight", both, stride)
            around, norm_back = self._normalised(f"{name}.shortcut.1", pair)

            def around_back(slopes: Tensor) -> Tensor:
                return point_back(norm_back(slopes)[0])

        pair, back1 = self._convolved(f"{name}.convolution1.weight", both, stride)
        inner, norm1_back = self._normalised(f"{name}.norm1", pair, rectified=True)
        pair, back2 = self._convolved(f"{name}.convolution2.weight", inner, 1)
        found, norm2_back = self._normalised(f"{name}.norm2", pair, around, rectified=True)

        def back(slopes: Tensor) -> Tensor:
            slopes, beside = norm2_back(slopes)
            return back1(norm1_back(back2(slopes))[0]) + around_back(beside)

        return found, back

    def _convolved(self, name: str, both: Tensor, stride: int) -> tuple[Pair, Back]:
        weight, direction, step = self._moving(name)
        moved, maps = functional.conv2d(both, weight, None, stride, 1), both[: self._half]
        tangents = moved[self._half :] + step * functional.conv2d(maps, direction, None, stride, 1)

        def back(slopes: Tensor) -> Tensor:
            to_maps, self.slopes[name], _ = torch.ops.aten.convolution_backward(
                slopes, maps, weight, None, [stride] * 2, [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
            )
            found: Tensor = to_maps
            return found

        return (moved[: self._half], tangents), back

    def _point(self, name: str, both: Tensor, stride: int) -> tuple[Pair, Back]:
        """A 1×1 convolution as a product of matrices."""
        weight, direction, step = self._moving(name)
        picked = both[:, :, ::stride, ::stride].permute(0, 2, 3, 1).contiguous()
        moved, maps = functional.linear(picked, weight.flatten(1)), picked[: self._half]
        tangents = moved[self._half :] + step * functional.linear(maps, direction.flatten(1))
        shape = both[: self._half].shape

        def back(slopes: Tensor) -> Tensor:
            slopes = slopes.permute(0, 2, 3, 1)
            self.slopes[name] = (slopes.flatten(0, 2).T @ maps.flatten(0, 2)).view(weight.shape)
            small = (slopes @ weight.flatten(1)).permute(0, 3, 1, 2)
            whole = torch.zeros(shape, dtype=slopes.dtype, device=slopes.device)
            whole[:, :, ::stride, ::stride] = small
            return whole

        return (moved[: self._half].permute(0, 3, 1, 2), tangents.permute(0, 3, 1, 2)), back

    def _normalised(
        self, name: str, pair: Pair, beside: Tensor | None = None, rectified: bool = False
    ) -> tuple[Tensor, Callable[[Tensor], Pair]]:
        """Batch-norm; back go the gradients of the maps and of what lies beside."""
        weight, bias = self.way.weights[f"{name}.weight"], self.way.weights[f"{name}.bias"]
        maps = pair[0]
        wide, moving = (each.to(torch.promote_types(each.dtype, torch.float32)) for each in pair)
        mean, variance = mean_and_variance(wide[None])
        inverse = torch.rsqrt(variance + EPSILON)
        drift = moving.mean((0, 2, 3))
        spread = ((wide * moving).mean((0, 2, 3)) - mean[0] * drift) * inverse[0]  # of the tangents along the maps
        normal = (wide - _wide(mean[0])) * _wide(inverse[0])
        moved = _wide(weight * inverse[0]) * (moving - _wide(drift) - normal * _wide(spread))
        found = normal * _wide(weight) + _wide(bias)
        if beside is not None:
            found, moved = found + beside[: self._half], moved + beside[self._half :]
        if rectified:
            found, moved = found.relu(), torch.where(found > 0, moved, 0)
        both = torch.cat([found.to(maps.dtype), moved.to(maps.dtype)])

        def go_back(slopes: Tensor) -> Pair:
            to_maps, _, _, to_beside = back(
                slopes, maps, weight, mean, inverse, both[: self._half] if rectified else None
            )
            return to_maps, to_beside

        return both, go_back


def _same(slopes: Tensor) -> Tensor:
    return slopes


def _wide(statistic: Tensor) -> Tensor:
    """(channels,) beside (b, channels, height, width)."""
    return statistic[:, None, None]
