"""LARS: momentum whose step is scaled, layer by layer, to the size of the weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..learning.compiling import compiled

TINY = 1e-9
ROW = 1024  # numbers in a row of the tables


@dataclass(frozen=True)
class Rule:
    """Layer-wise adaptive rates (You, Gitman and Ginsburg, 2017).

    A weight w with gradient g moves along g + decay · w, times the trust  eta · |w| / (|g| + decay · |w|). With `clip`
    the trust times the learning rate is never above the learning rate. Vectors (biases, batch-norm) take plain steps
    without decay.
    """

    momentum: float
    eta: float
    decay: float
    clip: bool


class LARS:
    """Moves parameters; no value is read back, so that a CUDA graph can hold a step.

    Weights, gradients and momenta are three tables of the same form, in which each layer begins a new row: a step is a
    handful of operations on whole tables, and not some on each of sixty layers. The parameters become views of theirs.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rule: Rule, *, compiling: bool = False) -> None:
        self.rule, self._move = rule, compiled(move, compiling)
        self.parameters = list(parameters)
        device = self.parameters[0].device
        rows = torch.tensor([-(-parameter.numel() // ROW) for parameter in self.parameters])
        self._owner = torch.arange(len(rows)).repeat_interleave(rows).to(device)  # (rows,) the layer of each row
        self._layers = nn.functional.one_hot(self._owner, len(rows)).T.double().contiguous()
        self._scaled = torch.tensor([parameter.ndim > 1 for parameter in self.parameters], device=device)
        self._weights, self._gradients, self._momenta = torch.zeros(3, len(self._owner), ROW, device=device)
        self._gradient_views, self.momenta = self._views(self._gradients), self._views(self._momenta)
        with torch.no_grad():
            for parameter, view in zip(self.parameters, self._views(self._weights), strict=True):
                parameter.data = view.copy_(parameter)

    def _views(self, table: Tensor) -> list[Tensor]:
        """Each parameter's place in a table, in the parameter's shape and layout."""
        views, first = [], 0
        for parameter in self.parameters:
            views.append(
                table.flatten().as_strided(parameter.shape, parameter.stride(), first + table.storage_offset())
            )
            first += -(-parameter.numel() // ROW) * ROW
        return views

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: Tensor) -> None:
        """One step at learning rate `rate`, a tensor without dimensions."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if len(gradients) < len(self.parameters):
            raise ValueError("every parameter must have a gradient; call backward first")
        torch._foreach_copy_(self._gradient_views, gradients)
        tables = self._weights, self._gradients, self._momenta
        self._move(*tables, self._owner, self._layers, self._scaled, rate, self.rule)


def move(
    weights: Tensor,
    gradients: Tensor,
    momenta: Tensor,
    owner: Tensor,
    layers: Tensor,
    scaled: Tensor,
    rate: Tensor,
    rule: Rule,
) -> None:
    """One step on (rows, ROW) tables, in place. layers: (layers, rows) ones and zeros; scaled: (layers,) bool."""
    size, slope = ((layers @ table.square().sum(1).double()).sqrt().float() for table in (weights, gradients))
    trust = rule.eta * size / (slope + rule.decay * size + TINY)
    if rule.clip:
        trust = (trust / rate).clamp(max=1)
    trust = torch.where(size == 0, 1.0, trust)
    trust = torch.where(slope == 0, 0.0, trust)  # no gradient, no step, not even decay
    trust = torch.where(scaled, trust, 1.0)[owner, None]
    decay = torch.where(scaled, rule.decay, 0.0)[owner, None]
    momenta.mul_(rule.momentum).add_(trust * (gradients + decay * weights))
    weights.sub_(momenta * rate)
