"""LARS against a loop over layers, and the tables that it keeps the weights in."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from keepset.views.lars import LARS, ROW, Rule

PLAIN = Rule(momentum=0.9, eta=0.02, decay=1e-2, clip=False)
RULES = [
    Rule(momentum, eta, decay, clip)
    for momentum, eta, decay, clip in itertools.product((0.0, 0.9), (0.02, 3.0), (0.0, 0.1), (False, True))
]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_parameters(shapes: Sequence[tuple[int, ...]]) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape, generator=seeded(n)) * (n + 1)) for n, shape in enumerate(shapes)]


def make_gradients(parameters: Sequence[Tensor], seed: int) -> list[Tensor]:
    source = seeded(100 + seed)
    return [torch.randn(parameter.shape, generator=source) * 0.1 for parameter in parameters]


def give(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()


def slow_step(weights: list[Tensor], momenta: list[Tensor], gradients: list[Tensor], rate: float, rule: Rule) -> None:
    """One layer at a time, in float64."""
    for weight, momentum, given in zip(weights, momenta, gradients, strict=True):
        gradient = given.double()
        size, slope = float(weight.square().sum()) ** 0.5, float(gradient.square().sum()) ** 0.5
        direction = gradient
        if weight.ndim > 1 and size > 0 and slope > 0:
            trust = rule.eta * size / (slope + rule.decay * size)
            if rule.clip:
                trust = min(trust / rate, 1)
            direction = trust * (gradient + rule.decay * weight)
        momentum.mul_(rule.momentum).add_(direction)
        weight.sub_(rate * momentum)


def check_steps(parameters: list[nn.Parameter], rule: Rule, steps: int = 4) -> None:
    weights = [parameter.detach().double().clone() for parameter in parameters]
    momenta = [torch.zeros_like(weight) for weight in weights]
    optimiser = LARS(parameters, rule)
    for step in range(steps):
        gradients, rate = make_gradients(parameters, step), 0.5 / (1 + step)
        give(parameters, gradients)
        optimiser.step(torch.tensor(rate))
        slow_step(weights, momenta, gradients, rate, rule)
    for parameter, weight, kept, momentum in zip(parameters, weights, optimiser.momenta, momenta, strict=True):
        for found, expected in ((parameter.detach(), weight), (kept, momentum)):
            nearly = 1e-6 * float(expected.abs().max())  # a small number may be the difference of large ones
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=nearly)


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_lars__steps_as_by_a_loop_over_layers(rule: Rule) -> None:
    """eta 0.02 is below the clip in places, eta 3 above it."""
    check_steps(make_parameters([(4, 3, 3, 3), (4,), (7, 5), (1,), (1, 1), (40, 60)]), rule)


@pytest.mark.parametrize("count", [1, ROW - 1, ROW, ROW + 1, 2 * ROW, 2 * ROW + 1])
def test_lars__layers_around_the_length_of_a_row(count: int) -> None:
    """A neighbour on each side: none may run into the other's rows."""
    check_steps(make_parameters([(3, 2), (count, 1), (2, 2), (count,), (1, 5)]), PLAIN)


def test_lars__vectors_take_plain_steps_without_decay() -> None:
    vector, matrix = (nn.Parameter(torch.full(shape, 10.0)) for shape in ((3,), (3, 1)))
    optimiser = LARS([vector, matrix], Rule(momentum=0, eta=0.02, decay=0.5, clip=False))
    give([vector, matrix], [torch.ones(3), torch.ones(3, 1)])
    optimiser.step(torch.tensor(0.5))
    assert torch.equal(vector.detach(), torch.full((3,), 9.5))
    # |w| = 10 √3, |g| = √3: trust 0.02 · 10 / (1 + 5), along 1 + 5
    torch.testing.assert_close(matrix.detach(), torch.full((3, 1), 10 - 0.5 * 0.2))


@pytest.mark.parametrize("clip", [False, True])
def test_lars__zero_weights_take_a_plain_step(clip: bool) -> None:
    weight = nn.Parameter(torch.zeros(2, 3))
    optimiser = LARS([weight], Rule(momentum=0.9, eta=0.02, decay=0.1, clip=clip))
    give([weight], [torch.full((2, 3), 4.0)])
    optimiser.step(torch.tensor(0.5))
    assert torch.equal(weight.detach(), torch.full((2, 3), -2.0))


@pytest.mark.parametrize("clip", [False, True])
def test_lars__zero_gradient_is_no_step_and_no_decay(clip: bool) -> None:
    weights = make_parameters([(2, 3), (4,)])
    before = [weight.detach().clone() for weight in weights]
    optimiser = LARS(weights, Rule(momentum=0.9, eta=0.02, decay=0.1, clip=clip))
    give(weights, [torch.zeros(2, 3), torch.zeros(4)])
    optimiser.step(torch.tensor(0.5))
    assert all(torch.equal(weight.detach(), old) for weight, old in zip(weights, before, strict=True))


def test_lars__momentum_goes_on_without_a_gradient() -> None:
    (weight,) = make_parameters([(2, 3)])
    optimiser = LARS([weight], PLAIN)
    before = weight.detach().clone()
    give([weight], [torch.ones(2, 3)])
    optimiser.step(torch.tensor(0.5))
    first = weight.detach() - before
    give([weight], [torch.zeros(2, 3)])
    optimiser.step(torch.tensor(0.5))
    torch.testing.assert_close(weight.detach() - before, 1.9 * first)


def test_lars__a_missing_gradient_is_refused_and_nothing_moves() -> None:
    weights = make_parameters([(2, 3), (4,)])
    optimiser = LARS(weights, PLAIN)
    before = weights[0].detach().clone()
    weights[0].grad = torch.ones(2, 3)
    with pytest.raises(ValueError, match="every parameter must have a gradient; call backward"):
        optimiser.step(torch.tensor(0.1))
    assert torch.equal(weights[0].detach(), before)


def test_lars__zero_grad_forgets_the_gradients() -> None:
    weights = make_parameters([(2, 3), (4,)])
    optimiser = LARS(weights, PLAIN)
    give(weights, make_gradients(weights, 0))
    optimiser.zero_grad()
    assert [weight.grad for weight in weights] == [None, None]


# ---------------------------------------------------------------- the weights in their table


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.head = nn.Linear(80, 2)
        with torch.no_grad():
            for number, weight in enumerate(self.parameters()):
                weight.copy_(torch.randn(weight.shape, generator=seeded(number)))

    def features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.norm(self.convolution(images))
        return maps.relu().flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


def test_lars__taking_the_weights_over_changes_no_bit() -> None:
    network = Network()
    before = copy.deepcopy(network.state_dict())
    optimiser = LARS(network.parameters(), PLAIN)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(weight.is_leaf and weight.requires_grad for weight in network.parameters())
    assert [momentum.shape for momentum in optimiser.momenta] == [weight.shape for weight in network.parameters()]
    assert not any(momentum.any() for momentum in optimiser.momenta)


def test_lars__the_network_sees_every_step() -> None:
    """In its forward pass, its state dict, and in a tensor that was taken out of that before the step."""
    network = Network()
    optimiser = LARS(network.parameters(), PLAIN)
    images = torch.randn(6, 3, 4, 4, generator=seeded(9))
    held = network.state_dict()["head.weight"]
    before = held.clone()
    network(images).square().mean().backward()
    optimiser.step(torch.tensor(0.5))
    moved = network.state_dict()["head.weight"]
    assert not torch.equal(moved, before)
    assert torch.equal(moved, held)
    features = network.features(images).detach()
    logits = network(images).detach() - network.head.bias.detach()
    torch.testing.assert_close(logits, features @ moved.T)
    assert not torch.allclose(logits, features @ before.T, rtol=1e-3)


def test_lars__written_weights_are_what_the_next_step_starts_from() -> None:
    """As after load_state_dict or a copy into what the state dict gives."""
    weights = make_parameters([(2, 3), (4,)])
    optimiser = LARS(weights, PLAIN)
    with torch.no_grad():
        weights[0].fill_(1.0)
    give(weights, [torch.ones(2, 3), torch.zeros(4)])
    optimiser.step(torch.tensor(0.5))
    expected = 1 - 0.5 * 0.02 / (1 + PLAIN.decay) * (1 + PLAIN.decay)
    torch.testing.assert_close(weights[0].detach(), torch.full((2, 3), expected))


def test_lars__channels_last_keeps_its_layout_and_its_numbers() -> None:
    networks = [Network(), Network()]
    networks[1].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimisers = [LARS(network.parameters(), PLAIN) for network in networks]
    for step in range(3):
        for network, optimiser in zip(networks, optimisers, strict=True):
            parameters = list(network.parameters())
            give(parameters, make_gradients(parameters, step))  # in the plain layout for both
            optimiser.step(torch.tensor(0.3))
    weight = networks[1].convolution.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    assert optimisers[1].momenta[0].stride() == weight.stride()
    for plain, last in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(last.detach(), plain.detach(), rtol=1e-6, atol=1e-7)
