"""LARS: momentum whose step is scaled, layer by layer, to the size of the weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

TINY = 1e-9


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
    """The parameters of a network with their momenta. No value is read back, so that a CUDA graph can hold a step."""

    def __init__(self, parameters: Iterable[nn.Parameter], rule: Rule, *, compiled: bool = False) -> None:
        self.rule, self.compiled = rule, compiled
        self.parameters = list(parameters)
        self.momenta = [torch.zeros_like(parameter, requires_grad=False) for parameter in self.parameters]

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: Tensor) -> None:
        """One step at learning rate `rate`, a tensor without dimensions."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if len(gradients) < len(self.parameters):
            raise ValueError("every parameter must have a gradient; call backward first")
        weights = [parameter.detach() for parameter in self.parameters]
        (_compiled() if self.compiled else move)(weights, gradients, self.momenta, rate, self.rule)


def move(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], momenta: Sequence[Tensor], rate: Tensor, rule: Rule
) -> None:
    """One step of LARS: weights and momenta are changed in place."""
    for weight, gradient, momentum in zip(weights, gradients, momenta, strict=True):
        wanted = gradient if weight.ndim < 2 else _trusted(weight, gradient, rate, rule)
        momentum.mul_(rule.momentum).add_(wanted)
        weight.sub_(momentum * rate)


def _trusted(weight: Tensor, gradient: Tensor, rate: Tensor, rule: Rule) -> Tensor:
    """The gradient with decay, times the trust."""
    size, slope = weight.norm(), gradient.norm()
    trust = rule.eta * size / (slope + rule.decay * size + TINY)
    if rule.clip:
        trust = (trust / rate).clamp(max=1)
    trust = torch.where(size == 0, 1.0, trust)
    trust = torch.where(slope == 0, 0.0, trust)  # no gradient, no step, not even decay
    return trust * (gradient + rule.decay * weight)


@functools.cache
def _compiled() -> Callable[..., None]:
    """All layers in a few kernels."""
    return torch.compile(move, dynamic=False)
