"""Each learner's step against a slow reference, and what no step may touch."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from keepset.learning import LEARNERS, Batch, Learner, LearnerSettings, learner
from keepset.learning.ascent import divergence
from keepset.learning.er import er
from keepset.learning.er_ace import er_ace
from keepset.learning.mir import highest, interference
from keepset.learning.resnet import small_net
from keepset.learning.star import random_directions, star, star_gradients
from keepset.learning.step import cross_entropy, logits_at, masked

CLASSES = 6
SEEN = torch.tensor([True, True, False, True, True, False])  # 0 and 1 are old, 3 and 4 new
STARRED = [name for name in LEARNERS if name.endswith("-star")]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_model(seed: int = 0) -> nn.Module:
    """With statistics that are not the initial ones, so that a net that forgets to use its batch is found out."""
    model = small_net(CLASSES, generator=seed).double().train()
    model(torch.rand(20, 1, 8, 8, generator=seeded(seed), dtype=torch.float64))
    return model


def make_batch(count: int, classes: Sequence[int], seed: int) -> Batch:
    images = torch.rand(count, 1, 8, 8, generator=seeded(seed), dtype=torch.float64)
    return Batch(images, torch.tensor([classes[i % len(classes)] for i in range(count)]))


def make_memory(name: str) -> list[Batch]:
    return [make_batch(count, [0, 1], 10 + place) for place, count in enumerate(learner(name).draws)]


NEW = make_batch(10, [3, 4], 1)


def step(name: str, model: nn.Module, memory: Sequence[Batch]) -> Tensor:
    return learner(name).prepare(model, seeded(5))(model, NEW, memory, SEEN)


def grads(model: nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        found[name] = weight.grad.clone()
    return found


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-12)


def slow_loss(logits: Tensor, label: int, allowed: Sequence[int]) -> Tensor:
    """−log of the softmax over the allowed classes alone, of one sample."""
    return torch.stack([logits[other] for other in allowed]).exp().sum().log() - logits[label]


def slow_mean(logits: Tensor, labels: Tensor, allowed: Sequence[int]) -> Tensor:
    losses = [slow_loss(row, int(label), allowed) for row, label in zip(logits, labels, strict=True)]
    return torch.stack(losses).sum() / len(losses)


def seen_classes() -> list[int]:
    return [index for index, flag in enumerate(SEEN.tolist()) if flag]


# ---------------------------------------------------------------- the masking rule


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_masked__softmax_is_exactly_zero_and_finite_elsewhere(dtype: torch.dtype) -> None:
    logits = (20 * torch.randn(50, CLASSES, generator=seeded(0))).to(dtype)
    chances = torch.softmax(masked(logits, SEEN), 1)
    assert chances[:, ~SEEN].eq(0).all()
    assert torch.log_softmax(masked(logits, SEEN), 1).isfinite().all()


def test_cross_entropy__is_that_of_the_seen_classes_alone() -> None:
    logits = torch.randn(7, CLASSES, generator=seeded(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 3, 4, 4, 0, 1])
    found = cross_entropy(logits, labels, SEEN, reduction="none")
    for row, label, loss in zip(logits, labels, found, strict=True):
        assert float(loss) == pytest.approx(float(slow_loss(row, int(label), seen_classes())), rel=1e-12)


# ---------------------------------------------------------------- what holds for all


@pytest.mark.parametrize("name", LEARNERS)
def test_first_episode__is_plain_cross_entropy(name: str) -> None:
    model, expected = make_model(), make_model()
    loss = slow_mean(expected(NEW.images), NEW.labels, seen_classes())
    loss.backward()
    found = step(name, model, [])
    assert not found.requires_grad
    torch.testing.assert_close(found, loss.detach())
    assert_close(grads(model), grads(expected))


@pytest.mark.parametrize("name", LEARNERS)
def test_unseen_classes__get_no_gradient_in_the_head(name: str) -> None:
    model = make_model()
    step(name, model, make_memory(name))
    found = grads(model)
    assert found["head.weight"][~SEEN].eq(0).all()
    assert found["head.bias"][~SEEN].eq(0).all()
    assert found["head.weight"][SEEN].ne(0).any(1).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_step__adds_to_the_gradients_and_leaves_the_weights(name: str) -> None:
    model = make_model()
    before = dict(state(model))
    step(name, model, make_memory(name))
    once = grads(model)
    step(name, model, make_memory(name))
    assert_close(grads(model), {key: 2 * grad for key, grad in once.items()})
    assert all(torch.equal(weight, before[key]) for key, weight in model.named_parameters())


@pytest.mark.parametrize("name", LEARNERS)
def test_step__same_to_the_bit_whatever_was_drawn_in_between(name: str) -> None:
    first, second = make_model(), make_model()
    outside = torch.get_rng_state()
    step(name, first, make_memory(name))
    assert torch.equal(torch.get_rng_state(), outside)
    torch.rand(3)
    step(name, second, make_memory(name))
    assert same(grads(first), grads(second))
    assert same(state(first), state(second))


@pytest.mark.parametrize("name", LEARNERS)
def test_step__frozen_weights_stay_without_gradient(name: str) -> None:
    model = make_model()
    model.get_parameter("body.0.weight").requires_grad_(False)
    step(name, model, make_memory(name))
    assert model.get_parameter("body.0.weight").grad is None
    assert model.get_parameter("body.3.weight").grad is not None


@pytest.mark.parametrize("name", LEARNERS)
def test_step__under_autocast_points_the_same_way(name: str) -> None:
    """Also guards against casts that are cached without gradient by a forward that needs none."""
    model, exact = make_model().float(), make_model().float()
    new = Batch(NEW.images.float(), NEW.labels)
    memory = [Batch(batch.images.float(), batch.labels) for batch in make_memory(name)]
    if name.startswith("mir"):  # which samples are retrieved may differ by rounding
        memory[0] = Batch(memory[0].images[:10], memory[0].labels[:10])
    learner(name).prepare(exact, seeded(5))(exact, new, memory, SEEN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        learner(name).prepare(model, seeded(5))(model, new, memory, SEEN)
    expected = grads(exact)
    for key, grad in grads(model).items():
        assert torch.cosine_similarity(grad.flatten(), expected[key].flatten(), dim=0) > 0.95, key


@pytest.mark.parametrize("name", LEARNERS)
def test_step__gradients_lie_in_memory_as_the_weights_do(name: str) -> None:
    """On images with the channels last, whose convolutions return gradients laid out like them; torch warns of that."""
    model = small_net(CLASSES, channels=3).train()
    new, *batches = (
        Batch(batch.images.float().expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last), batch.labels)
        for batch in [NEW, *make_memory(name)]
    )
    learner(name).prepare(model, seeded(0))(model, new, batches, SEEN)
    for weight in model.parameters():
        assert weight.grad is not None
        assert weight.grad.stride() == weight.stride()


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


def set_far_off(model: nn.Module) -> None:
    """Running means so far away that a move takes a tenth of what they are."""
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.fill_(1e9)


def times_moved(model: nn.Module) -> int:
    """How often the running means moved since they were set far off."""
    means = torch.cat([buffer for name, buffer in model.named_buffers() if name.endswith("running_mean")])
    times = (means / 1e9).log() / math.log(0.9)
    assert (times - times.round()).abs().max() < 1e-3
    assert times.round().unique().numel() == 1
    return int(times[0].round())


@pytest.mark.parametrize(("name", "forwards"), [("er", 1), ("mir", 1), ("er-star", 1), ("mir-star", 1), ("er-ace", 2)])
def test_step__batch_norm_moves_once_for_each_forward_that_trains(name: str, forwards: int) -> None:
    model = make_model()
    set_far_off(model)
    step(name, model, make_memory(name))
    assert times_moved(model) == forwards


# ---------------------------------------------------------------- ER and ER-ACE


def test_er__one_forward_and_one_mean_over_new_and_memory() -> None:
    model, expected = make_model(), make_model()
    (replayed,) = make_memory("er")
    logits = expected(torch.cat([NEW.images, replayed.images]))
    loss = slow_mean(logits, torch.cat([NEW.labels, replayed.labels]), seen_classes())
    loss.backward()
    torch.testing.assert_close(er(model, NEW, [replayed], SEEN), loss.detach())
    assert_close(grads(model), grads(expected))
    assert_close(statistics(model), statistics(expected))


def test_er_ace__new_images_compete_with_the_classes_of_their_minibatch_only() -> None:
    """New 3 and 4, memory 0, 1 and 4: the new images choose among {3, 4}, the memory among {0, 1, 3, 4}."""
    model, expected = make_model(), make_model()
    replayed = make_batch(9, [0, 1, 4], 2)
    loss_new = slow_mean(expected(NEW.images), NEW.labels, [3, 4])
    loss_memory = slow_mean(expected(replayed.images), replayed.labels, [0, 1, 3, 4])
    loss = 0.5 * (loss_memory + loss_new)
    loss.backward()
    torch.testing.assert_close(er_ace(model, NEW, [replayed], SEEN), loss.detach())
    assert_close(grads(model), grads(expected))
    assert_close(statistics(model), statistics(expected))  # two forwards, apart


def test_er_ace__a_minibatch_of_one_class_teaches_nothing_new() -> None:
    """Among a single class every image is certain: only the memory has a gradient."""
    model, expected = make_model(), make_model()
    new, replayed = make_batch(5, [3], 3), make_batch(10, [0, 1], 2)
    loss = slow_mean(expected(replayed.images), replayed.labels, seen_classes()) / 2
    loss.backward()
    torch.testing.assert_close(er_ace(model, new, [replayed], SEEN), loss.detach())
    assert_close(grads(model), grads(expected))


# ---------------------------------------------------------------- MIR


def test_interference__is_the_rise_of_each_loss_by_a_real_step_of_a_copy() -> None:
    model, rate = make_model(), 0.3
    candidates = make_batch(50, [0, 1], 4)

    def losses(net: nn.Module) -> Tensor:
        rows = copy.deepcopy(net)(candidates.images)
        found = [slow_loss(row, int(label), seen_classes()) for row, label in zip(rows, candidates.labels, strict=True)]
        return torch.stack(found).detach()

    stepped = copy.deepcopy(model)
    slow_mean(stepped(NEW.images), NEW.labels, seen_classes()).backward()
    torch.optim.SGD(stepped.parameters(), lr=rate).step()
    found = interference(model, NEW, candidates, SEEN, rate)
    torch.testing.assert_close(found, losses(stepped) - losses(model), rtol=1e-9, atol=1e-12)
    assert found.gt(0).any()


def test_interference__moves_neither_weights_nor_statistics_nor_gradients() -> None:
    model = make_model()
    before = state(model)
    scores = interference(model, NEW, make_batch(50, [0, 1], 4), SEEN, 0.1)
    assert not scores.requires_grad
    assert same(state(model), before)
    assert all(weight.grad is None for weight in model.parameters())


def test_highest__by_score_and_ties_by_order() -> None:
    batch = Batch(torch.arange(6.0), torch.arange(6))
    scores = torch.tensor([0.0, 2.0, 1.0, 2.0, 1.0, -1.0])
    assert highest(batch, scores, 4).labels.tolist() == [1, 3, 2, 4]
    assert highest(batch, scores, 10).images.tolist() == [1.0, 3.0, 2.0, 4.0, 0.0, 5.0]


def test_mir__is_er_with_the_ten_most_interfered() -> None:
    model, expected = make_model(), make_model()
    (candidates,) = make_memory("mir")
    assert len(candidates.labels) == 50
    scores = interference(expected, NEW, candidates, SEEN, learner("mir").rate).tolist()
    rows = sorted(range(50), key=lambda row: -scores[row])[:10]
    loss = er(expected, NEW, [Batch(candidates.images[rows], candidates.labels[rows])], SEEN)
    torch.testing.assert_close(step("mir", model, [candidates]), loss)
    assert_close(grads(model), grads(expected))
    assert_close(statistics(model), statistics(expected))


# ---------------------------------------------------------------- STAR


def memory_that_is_known(model: nn.Module, count: int = 10, wrong: int = 3) -> Batch:
    """A memory batch of which the model, as it is, gets all but the first `wrong` right."""
    batch = make_batch(count, [0], 6)
    labels = masked(copy.deepcopy(model)(batch.images), SEEN).argmax(1)
    labels[:wrong] = torch.where(labels[:wrong] == 0, 1, 0)
    return Batch(batch.images, labels)


Weights = dict[str, Tensor]


def spy(monkeypatch: pytest.MonkeyPatch) -> list[Weights]:
    """The weights at each of STAR's three forwards: θ, beside it, θ + δ."""
    calls: list[Weights] = []

    def recorded(model: nn.Module, weights: Weights, images: Tensor, moves_statistics: bool) -> Tensor:
        calls.append({name: weight.detach().clone() for name, weight in weights.items()})
        return logits_at(model, weights, images, moves_statistics)

    monkeypatch.setattr("keepset.learning.ascent.logits_at", recorded)
    return calls


def net_at(model: nn.Module, weights: Weights) -> nn.Module:
    net = copy.deepcopy(model)
    net.load_state_dict(weights, strict=False)
    net.zero_grad()
    return net


def slow_divergence(model: nn.Module, other: nn.Module, batch: Batch) -> Tensor:
    """KL(p ‖ q), summed class by class, mean over the samples that the model gets right."""
    seen = seen_classes()
    first = torch.softmax(copy.deepcopy(model)(batch.images)[:, seen], 1).detach()
    second = torch.softmax(other(batch.images)[:, seen], 1)
    found = []
    for p, q, label in zip(first, second, batch.labels.tolist(), strict=True):
        if seen[int(p.argmax())] == label:
            found.append(torch.stack([p[c] * (p[c].log() - q[c].log()) for c in range(len(seen))]).sum())
    return torch.stack(found).sum() / len(found)


def test_star__moves_each_matrix_by_its_share_along_the_gradient_and_vectors_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, model = spy(monkeypatch), make_model()
    settings = LearnerSettings(star_gamma=0.05, star_noise=0.01)
    batch = memory_that_is_known(model)
    star_gradients(model, batch, SEEN, random_directions(model, settings.star_noise, seeded(0)), settings)
    weights, beside, worst = calls
    assert same(weights, dict(model.named_parameters()))
    slow = net_at(model, beside)
    slow_divergence(model, slow, batch).backward()
    for name, slope in grads(slow).items():
        if slope.ndim < 2:
            assert torch.equal(beside[name], weights[name])
            assert torch.equal(worst[name], weights[name])
            continue
        norm, shift = float(weights[name].norm()), worst[name] - weights[name]
        assert float((beside[name] - weights[name]).norm()) == pytest.approx(0.01 * norm, rel=1e-6)
        assert float(shift.norm()) == pytest.approx(0.05 * norm, rel=1e-9)
        torch.testing.assert_close(shift / shift.norm(), slope / slope.norm(), rtol=1e-6, atol=1e-8)


def test_star__gradient_is_that_of_finite_differences_at_the_moved_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, model = spy(monkeypatch), make_model()
    batch, settings = memory_that_is_known(model), LearnerSettings(star_gamma=0.05, star_noise=1e-3)
    loss, found = star_gradients(model, batch, SEEN, random_directions(model, settings.star_noise, seeded(0)), settings)
    _, _, worst = calls
    with torch.no_grad():
        assert float(loss) == pytest.approx(0.1 * float(slow_divergence(model, net_at(model, worst), batch)), rel=1e-9)
        for name, weight in worst.items():
            largest = int(found[name].abs().argmax())
            for place in {0, weight.numel() // 2, largest}:
                height = [0.0, 0.0]
                for side, sign in enumerate((1, -1)):
                    shifted = weight.clone()
                    shifted.view(-1)[place] += sign * 1e-5
                    height[side] = 0.1 * float(slow_divergence(model, net_at(model, {**worst, name: shifted}), batch))
                slope = (height[0] - height[1]) / 2e-5
                assert float(found[name].view(-1)[place]) == pytest.approx(slope, rel=1e-4, abs=1e-9), name


def test_star__goes_uphill(monkeypatch: pytest.MonkeyPatch) -> None:
    """The move along the gradient hurts more than a random one of the same length."""
    calls, model = spy(monkeypatch), make_model()
    batch, settings = memory_that_is_known(model), LearnerSettings(star_noise=0.01)
    star_gradients(model, batch, SEEN, random_directions(model, settings.star_noise, seeded(0)), settings)
    with torch.no_grad():
        _, beside, worst = (float(slow_divergence(model, net_at(model, weights), batch)) for weights in calls)
    assert worst > 2 * beside


@pytest.mark.parametrize(("right", "counts"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("name", STARRED)
def test_star__fewer_than_two_correct_contribute_exactly_nothing(name: str, right: int, counts: bool) -> None:
    model, plain = make_model(), make_model()
    *own, _ = make_memory(name)
    last = memory_that_is_known(model, count=10, wrong=10 - right)
    settings = LearnerSettings(rate=0.01)
    learner(name, settings).prepare(model, seeded(5))(model, NEW, [*own, last], SEEN)
    learner(name.removesuffix("-star"), settings).gradients(plain, NEW, own, SEEN)
    assert same(grads(model), grads(plain)) != counts
    assert same(state(model), state(plain))


def test_divergence__mean_over_those_counted_and_zero_of_one() -> None:
    """From (½, ½) to (¼, ¾): ½ log 2 + ½ log ⅔."""
    log_p, log_q = (torch.tensor([row] * 3).log() for row in ([0.5, 0.5], [0.25, 0.75]))
    log_q[2] = log_p[2]
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    for counted, share in (([1, 1, 0], 1.0), ([1, 1, 1], 2 / 3), ([1, 0, 1], 0.5), ([1, 0, 0], 0.0), ([0, 0, 0], 0.0)):
        assert float(divergence(log_p, log_q, torch.tensor(counted).bool())) == pytest.approx(share * expected)


@pytest.mark.parametrize("name", STARRED)
def test_star__gradients_and_losses_add_up(name: str) -> None:
    model, plain, alone = make_model(), make_model(), make_model()
    *own, _ = make_memory(name)
    last, settings = memory_that_is_known(model), LearnerSettings(rate=0.01)
    loss = learner(name, settings).prepare(model, seeded(5))(model, NEW, [*own, last], SEEN)
    inner = learner(name.removesuffix("-star"), settings).gradients(plain, NEW, own, SEEN)
    added, steady = star_gradients(alone, last, SEEN, random_directions(alone, 0, seeded(5)), settings)
    torch.testing.assert_close(loss, inner + added)
    assert all(weight.grad is None for weight in alone.parameters())
    assert_close(grads(model), {key: grad + steady[key] for key, grad in grads(plain).items()})


@pytest.mark.parametrize(("star_noise", "forwards"), [(0, 2), (1e-3, 3)])
def test_star_gradients__moves_statistics_only_if_asked(star_noise: float, forwards: int) -> None:
    model = make_model()
    batch, noise = memory_that_is_known(model), random_directions(model, star_noise, seeded(0))
    before = state(model)
    star_gradients(model, batch, SEEN, noise, LearnerSettings(star_noise=star_noise))
    assert same(state(model), before)
    set_far_off(model)
    star_gradients(model, batch, SEEN, noise, LearnerSettings(star_noise=star_noise, star_moves_statistics=True))
    assert times_moved(model) == forwards
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_star_gradients__under_autocast_the_same_worst_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """From noise, in bfloat16, it would be rounding noise; the gradient there is as good as any in bfloat16."""
    calls, model = spy(monkeypatch), make_model().float()
    batch = memory_that_is_known(make_model())
    batch, noise = Batch(batch.images.float(), batch.labels), random_directions(model, 1e-3, seeded(0))
    settings = LearnerSettings(star_noise=1e-3)
    _, plain = star_gradients(model, batch, SEEN, noise, settings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, found = star_gradients(model, batch, SEEN, noise, settings)
    assert len(calls) == 6
    for before, after in zip(calls[:3], calls[3:], strict=True):
        torch.testing.assert_close(after, {name: weight.to(after[name]) for name, weight in before.items()})
    first, second = (torch.cat([slope.flatten() for slope in slopes.values()]) for slopes in (plain, found))
    assert not torch.equal(first, second)
    assert float(torch.cosine_similarity(first, second, dim=0)) > 0.99


def test_star_gradients__without_a_slope_nothing_moves() -> None:
    """None is classified correctly: the divergence is flat, and the weights that it is taken at are finite."""
    model = make_model()
    batch = memory_that_is_known(model)
    wrong = Batch(batch.images, 1 - batch.labels)
    loss, slopes = star_gradients(model, wrong, SEEN, random_directions(model, 0, seeded(0)), LearnerSettings())
    assert float(loss) == 0
    assert all(slope.eq(0).all() for slope in slopes.values())


def test_star__wraps_a_learner_of_ones_own_and_even_itself() -> None:
    mine = star(Learner("mine", er, (4,), 0.5), LearnerSettings(memory_batch=3))
    assert (mine.name, mine.draws, mine.rate) == ("mine-star", (4, 3), 0.5)
    twice = star(mine, LearnerSettings(memory_batch=2))
    assert twice.draws == (4, 3, 2)
    model = make_model()
    memory = [make_batch(count, [0, 1], count) for count in twice.draws]
    assert twice.prepare(model, seeded(0))(model, NEW, memory, SEEN).isfinite()


def test_star__another_seed_another_direction() -> None:
    model = make_model()
    first, again, other = (random_directions(model, 1e-3, seeded(seed)) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)
    assert set(first) == {"body.0.weight", "body.3.weight", "head.weight"}
    assert all(float(direction.norm()) == pytest.approx(1) for direction in first.values())


def test_star__unprepared_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"learner\.prepare\(model, generator\)"):
        learner("er-star").gradients(make_model(), NEW, [], SEEN)


# ---------------------------------------------------------------- names and settings


@pytest.mark.parametrize(
    ("name", "draws", "rate", "holds_new_classes", "joint"),
    [
        ("finetune", (), 0.1, False, False),
        ("joint", (), 0.1, False, True),
        ("er", (10,), 0.1, False, False),
        ("er-ace", (10,), 0.01, True, False),
        ("mir", (50,), 0.1, False, False),
        ("er-star", (10, 10), 0.01, False, False),
        ("er-ace-star", (10, 10), 0.01, True, False),
        ("mir-star", (50, 10), 0.01, False, False),
    ],
)
def test_learner__what_it_wants(
    name: str, draws: tuple[int, ...], rate: float, holds_new_classes: bool, joint: bool
) -> None:
    found = learner(name)
    assert found.name == name
    assert (found.draws, found.rate, found.holds_new_classes, found.joint) == (draws, rate, holds_new_classes, joint)


def test_learner__settings_reach_it() -> None:
    settings = LearnerSettings(memory_batch=4, mir_candidates=12, rate=0.5)
    assert (learner("mir-star", settings).draws, learner("mir-star", settings).rate) == ((12, 4), 0.5)
    model, expected = make_model(), make_model()
    candidates = make_batch(12, [0, 1], 4)
    learner("mir", settings).gradients(model, NEW, [candidates], SEEN)
    er(expected, NEW, [highest(candidates, interference(expected, NEW, candidates, SEEN, 0.5), 4)], SEEN)
    assert_close(grads(model), grads(expected))


@pytest.mark.parametrize(("name", "hint"), [("er-acee", "'er-ace'"), ("mirr", "'mir'"), ("finetune-star", "finetune")])
def test_learner__unknown_name_gets_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"unknown learner '{name}'; did you mean .*{hint}"):
        learner(name)


@pytest.mark.parametrize("field", ["memory_batch", "mir_candidates", "star_gamma", "star_lambda", "star_noise", "rate"])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_learner_settings__out_of_range_names_the_argument(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        replace(LearnerSettings(), **{field: value})  # type: ignore[arg-type]
