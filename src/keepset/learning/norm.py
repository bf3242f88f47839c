"""Batch-norm over a batch of several parts, each with statistics of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Parts = tuple[int, ...]
"""Sizes of the parts of a batch, one after the other; empty: it is one."""


class Norm(nn.BatchNorm2d):
    """nn.BatchNorm2d, but a batch of several parts is normalised as if each part had come by itself, in their order."""

    def forward(self, maps: Tensor, parts: Parts = ()) -> Tensor:
        """(b, channels, height, width), the parts' sizes adding up to b."""
        if not self.training or len(parts) < 2:
            return super().forward(maps)
        if maps.is_cuda and len(set(parts)) == 1:
            return self.at_once(maps, len(parts))
        return torch.cat([super(Norm, self).forward(part) for part in maps.split(parts)])

    def at_once(self, maps: Tensor, count: int) -> Tensor:
        """`count` equal parts in one go: for a compiler half as many kernels as part by part."""
        pieces = maps.unflatten(0, (count, -1)).float()  # (count, b / count, channels, height, width)
        over = pieces[0].numel() // pieces.shape[2]  # numbers behind each statistic
        if over < 2:
            raise ValueError(
                f"a part needs more than one value a channel in training, got shape {tuple(pieces[0].shape)}"
            )
        variance, mean = torch.var_mean(pieces, (1, 3, 4), correction=0)  # (count, channels)
        self._follow(mean.detach(), variance.detach() * (over / (over - 1)))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        normal = pieces * scale[:, None, :, None, None] + shift[:, None, :, None, None]
        result: Tensor = normal.to(maps.dtype).flatten(0, 1)
        return result

    @torch.no_grad()
    def _follow(self, means: Tensor, variances: Tensor) -> None:
        """The running statistics, part after part, as so many forwards would move them."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            raise ValueError("a batch in parts needs running statistics; make the layer with track_running_stats=True")
        share = 0.1 if self.momentum is None else self.momentum
        for mean, variance in zip(means, variances, strict=True):
            self.running_mean.lerp_(mean.to(self.running_mean), share)
            self.running_var.lerp_(variance.to(self.running_var), share)
        self.num_batches_tracked.add_(len(means))
