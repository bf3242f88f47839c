"""Soft cover of more rows than one process holds: each part keeps its own, on Ray, and the best of these are kept."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_range, read_generator
from .api import ALIASES, SELECTORS, Generator, select
from .greedy import TIES, Picks
from .inputs import as_tensor, read_view
from .options import Cover
from .problem import Problem, make_problem, normal
from .result import Selection
from .room import SHARE, free_bytes
from .sampled import SAMPLED, Scales, exact_copies
from .scales import neighbour_count
from .shards import Rows, Source, View, open_views
from .soft import _parts, _weighted_kernels
from .streaming import ExactSearch, Kernel, streamed_greedy

TARGETS = 20_000  # rows that the second round covers besides the candidates
RETRIES = 3  # of a task whose process or machine is lost
METHODS = ("mers", "maxherding")
SCALES = ("weights", "bandwidth", "bandwidth_scale", "neighbours")  # what is handed to the parts as numbers
NOT_HERE = {
    "start": "choose on one machine with keepset.select",
    "point_weights": "choose on one machine with keepset.select",
    "point_power": "it goes with point_weights, which is not either",
    "purity_view": "it goes with point_weights, which is not either",
    "on_pick": "on_part is told of each part that is done",
}
NONE = torch.empty(0, dtype=torch.int64)
OnPart = Callable[[int, int], object]
Kept = tuple[Rows, dict[str, Rows]]  # row numbers in the order picked, and their rows in each view


def select_distributed(
    sources: Mapping[str, Source],
    budget: int,
    *,
    method: str = "mers",
    parts: int | None = None,
    address: str = "",
    generator: Generator = 0,
    on_part: OnPart | None = None,
    **options: Any,
) -> Selection:
    """Choose `budget` of the rows of `sources` by soft cover, in two rounds, the first of them on a Ray cluster.

    sources: view name -> a numpy array, a file .npy or .parquet, or a list of these, one after the other.
    method: `mers` or `maxherding`; the options are those of `select`, but for a few, which are refused by name.
    parts: how many parts the rows are split into at random; None for as many as the cluster has cores, at least 2.
    address: of the cluster; without it $RAY_ADDRESS, or else one is started on this machine.
    on_part: called with the number of parts done and that of all whenever one is done.

    The indices are row numbers. Gains and coverage are those of the candidates and a sample of all rows.
    """
    views = open_views(sources)
    count = len(next(iter(views.values())))
    if count < 2:
        raise ValueError("sources must have at least 2 rows, got 1; there is nothing to choose")
    wanted = check_range("budget", budget, 1, count, "the number of rows")
    asked = None if parts is None else check_range("parts", parts, 1, count, "the number of rows")
    name, read, cover, k = _read_options(views, wanted, method, options)
    seed = int(torch.randint(2**62, (), generator=read_generator(generator)))
    ray = _import_ray()

    sample = _draw(read, count, seed)
    measured = _measure({view: points[~sample.fresh] for view, points in sample.views.items()}, cover, k, count)
    settings = {option: value for option, value in options.items() if option not in ("view", *SCALES, *NOT_HERE)}
    settings |= {"weights": measured.weights, "bandwidth": measured.bandwidths}
    with _cluster(ray, address):
        split, notes = _split(count, wanted, asked or max(2, int(ray.cluster_resources().get("CPU", 1))), seed)
        kept = _first_round(ray, read, split, (wanted, name, seed, settings), on_part)
    chosen = _second_round(kept, sample, wanted, measured, count)
    return replace(chosen, method=name, k=k, notes=(*notes, *measured.notes, *chosen.notes))


# ---------------------------------------------------------------- what was asked for


def _read_options(
    views: dict[str, View], budget: int, method: str, options: Mapping[str, Any]
) -> tuple[str, dict[str, View], Cover, int]:
    """The method's own name, the views that it reads, its settings and k; `select` itself refuses what is wrong."""
    for option, remedy in NOT_HERE.items():
        if options.get(option) is not None:
            raise ValueError(f"{option} is not for select_distributed; {remedy}")
    if not isinstance(method, str) or (method in SELECTORS and method not in METHODS):
        raise ValueError(
            f"method must be one of {', '.join(METHODS)} (soft cover), got {method!r}; keepset.select takes the others"
        )
    given = {option: value for option, value in options.items() if option not in NOT_HERE}
    k = given.pop("neighbours", None)
    tried = select({name: np.eye(2) for name in views}, 1, method=method, **given)  # on two points, for its checks
    count = len(next(iter(views.values())))
    k = neighbour_count(count, budget) if k is None else check_range("neighbours", k, 1, count - 1, "the other points")
    given.pop("view", None)
    return ALIASES.get(method, method), {name: views[name] for name in tried.weights}, Cover(**given), k


@dataclass(frozen=True)
class Sample:
    """Rows drawn from all, each as likely as any other, in ascending order."""

    rows: Rows
    views: dict[str, Tensor]
    fresh: Tensor
    """Which of them no choice has seen, so that they tell how well it covers; the others are to be covered."""


def _draw(views: dict[str, View], count: int, seed: int) -> Sample:
    """As many rows as are covered, or all, and as many fresh ones, if there are."""
    drawn = np.random.default_rng([seed, 0]).choice(count, min(2 * TARGETS, count), replace=False)
    order = np.argsort(drawn)
    rows = drawn[order]
    read = {name: read_view(name, view.rows(rows), as_tensor(rows)) for name, view in views.items()}
    return Sample(rows, read, torch.from_numpy(order >= TARGETS))


def _split(count: int, least: int, parts: int, seed: int) -> tuple[list[Rows], list[str]]:
    """The row numbers of each part, ascending: every row goes to any of the parts, independently of the others.

    Where a part came out with fewer than `least` rows there are fewer parts.
    """
    number = min(parts, count // least)
    while True:
        owners = np.random.default_rng([seed, number]).integers(number, size=count, dtype=np.int32)
        sizes = np.bincount(owners, minlength=number)
        if sizes.min() >= least:
            break
        number -= max(1, number // 20)
    notes = [f"{number} of {parts} parts: each must hold as many rows as the budget, {least}"] if number < parts else []
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(sizes)[:-1]), notes


# ---------------------------------------------------------------- scales, the same in all parts


@dataclass(frozen=True)
class Measured:
    """What similar means, in numbers by view."""

    weights: dict[str, float]
    bandwidths: dict[str, float]
    cover: Cover
    """The same as settings, for the second round."""
    notes: list[str]


def _measure(sampled: dict[str, Tensor], cover: Cover, k: int, count: int) -> Measured:
    """Weights and bandwidths of the sample, for all: a k-th neighbour of `count` rows is nearer than one of a few."""
    size = len(next(iter(sampled.values())))
    near = min(max(round(k * size / count), 1), size - 1)
    problem = make_problem(sampled, 1, NONE, replace(cover, neighbours=near, memory=1))
    given = cover.given_bandwidths(problem.names)
    weights, bandwidths = [], {}
    for position, name in enumerate(problem.names):
        scales = Scales(problem.points(position), near)
        if size > SAMPLED:
            scales.sample = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:SAMPLED]
        weights.append(problem.weight(position, scales.weight))
        rule = str(cover.bandwidth)
        bandwidths[name] = given[position] if given else scales.bandwidth(rule, cover.metric) * cover.bandwidth_scale
        if not bandwidths[name]:
            raise ValueError(f"view {name!r} has no scale: its points coincide; give bandwidth= as a number instead")
        for text in scales.notes:
            problem.note(position, text)
    if size < count and (problem.weighs or not given):
        problem.notes.append(_sampled_note(problem, size, count, near, k))
    shares = dict(zip(problem.names, normal(weights), strict=True))
    numbers = replace(cover, weights=shares, bandwidth=bandwidths, bandwidth_scale=1.0, memory=1)
    return Measured(shares, bandwidths, replace(numbers, search="exact", epsilon=Cover.epsilon), problem.notes)


def _sampled_note(problem: Problem, size: int, count: int, near: int, k: int) -> str:
    told = f"weights and bandwidths are those among {size:,} of {count:,} rows"
    if problem.weighs or problem.cover.bandwidth == "knn":
        told += f", with {near} of the neighbours there for the {k} among all"
    if near == 1 and problem.weighs and problem.cover.weights in ("printed", "inverse"):
        told += "; with a single one all views weigh the same: give weights= as numbers to weigh them otherwise"
    return told


# ---------------------------------------------------------------- the first round


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("select_distributed needs Ray; pip install keepset[ray]") from None
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """A connection to Ray: the caller's, if there is one, or else one that ends here."""
    ours = not ray.is_initialized()
    if ours:
        quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
        if not address and not os.environ.get("RAY_ADDRESS"):
            quiet["include_dashboard"] = False
        try:
            ray.init(address=address or None, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ValueError(f"cannot reach Ray at {address or 'this machine'}: {error}") from None
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _first_round(
    ray: Any, views: dict[str, View], split: list[Rows], how: tuple[int, str, int, dict[str, Any]], told: OnPart | None
) -> list[Kept]:
    """What each part keeps."""
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(select_part)
    shared = ray.put(views)
    pending = {task.remote(shared, rows, *how): part for part, rows in enumerate(split)}
    kept: dict[int, Kept] = {}
    try:
        while pending:
            done = ray.wait(list(pending), num_returns=1)[0][0]
            part = pending.pop(done)
            kept[part] = _result(ray, done, f"part {part + 1} of {len(split)}")
            if told is not None:
                told(len(kept), len(split))
    finally:
        for left in pending:
            ray.cancel(left, force=True)
    return [kept[part] for part in range(len(split))]


def _result(ray: Any, done: Any, part: str) -> Kept:
    try:
        found: Kept = ray.get(done)
        return found
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ValueError):
            raise ValueError(f"{part}: {cause}") from None
        raise RuntimeError(f"{part} failed: {type(cause).__name__}: {cause}") from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(
            f"{part} was lost with its worker, {RETRIES + 1} times ({type(error).__name__}); if memory ran out, "
            "smaller parts need less of it: raise parts="
        ) from None


def select_part(
    views: dict[str, View], rows: Rows, budget: int, method: str, seed: int, options: Mapping[str, Any]
) -> Kept:
    """One part's choice among its own rows."""
    if isinstance(options.get("memory", "auto"), str):  # each core may have a task like this one
        options = {**options, "memory": max(1, int(SHARE * free_bytes(torch.device("cpu"))) // (os.cpu_count() or 1))}
    read = {name: read_view(name, view.rows(rows), as_tensor(rows)) for name, view in views.items()}
    own = torch.Generator().manual_seed(seed ^ int(rows[0]))
    picks = torch.as_tensor(select(read, budget, method=method, generator=own, **options).indices)
    return rows[picks.numpy()], {name: view[picks].numpy() for name, view in read.items()}


# ---------------------------------------------------------------- the second round


@dataclass(frozen=True)
class Candidates(Kernel):
    """A kernel whose first `count` points alone may be taken: sums over all rows pass over the others."""

    count: int

    def row_sums(self) -> Tensor:
        nothing = torch.zeros_like(self.worth)
        return self.excess(None, self.worth.nonzero().flatten(), nothing, torch.full_like(nothing, torch.inf))

    def excess(self, rows: Tensor | None, points: Tensor, low: Tensor, high: Tensor) -> Tensor:
        if rows is not None:
            return super().excess(rows, points, low, high)
        sums = torch.zeros(len(self), dtype=torch.float64)
        sums[: self.count] = super().excess(torch.arange(self.count), points, low, high)
        return sums


def _second_round(kept: list[Kept], sample: Sample, budget: int, measured: Measured, count: int) -> Selection:
    """The best of all that was kept, or the best single part's choice, by how they cover candidates and sample."""
    rows = np.concatenate([numbers for numbers, _ in kept])
    order = np.argsort(rows)
    rows = rows[order]
    others = torch.from_numpy(~np.isin(sample.rows, rows))
    views = {
        name: torch.cat([as_tensor(np.concatenate([own[name] for _, own in kept])[order]), view[others]])
        for name, view in sample.views.items()
    }
    worth = _worth(len(rows), sample.fresh[others], count)
    problem = make_problem(views, budget, NONE, replace(measured.cover, point_weights=worth))
    weights, bandwidths = list(measured.weights.values()), list(measured.bandwidths.values())
    kernels = _kernels(problem, weights, bandwidths, len(rows))
    picks, notes = _better(kernels, [torch.from_numpy(np.searchsorted(rows, numbers)) for numbers, _ in kept], problem)
    if int((worth > 0).sum()) < count:
        notes.append(_estimate(_covered(kernels, picks.indices), worth > 0, count))
    parts = picks.parts if picks.parts.shape[1] == len(views) else _parts(problem, picks, weights, bandwidths)
    found = problem.selection(picks, parts, weights, bandwidths)
    return replace(
        found,
        indices=rows[picks.indices.numpy()],
        gains=picks.gains.numpy(),
        shares={name: as_tensor(share).numpy() for name, share in found.shares.items()},
        search="distributed",
        notes=tuple(notes),
    )


def _worth(candidates: int, fresh: Tensor, count: int) -> Tensor:
    """A candidate stands for itself, sampled others for all that are no candidates, and fresh ones for nothing."""
    covered = int((~fresh).sum())
    others = (~fresh).double() * ((count - candidates) / max(covered, 1))
    return torch.cat([torch.ones(candidates, dtype=torch.float64), others])


def _kernels(problem: Problem, weights: Sequence[float], bandwidths: Sequence[float], count: int) -> list[Candidates]:
    clouds = [exact_copies(problem.points(position)) for position in range(len(weights))]
    similar = _weighted_kernels(problem, weights, bandwidths)
    worth = problem.worth.to(clouds[0].half_norms)
    summed = problem.cover.fusion == "sum-then-max"
    groups = [list(range(len(clouds)))] if summed else [[position] for position in range(len(clouds))]
    return [Candidates([clouds[m] for m in group], [similar[m] for m in group], worth, count) for group in groups]


def _best_among(kernels: list[Candidates], places: Tensor, problem: Problem) -> Picks:
    """Greedy, where these alone may be taken."""
    search = ExactSearch(kernels, NONE)
    search.allowed[:] = False
    search.allowed[places] = True
    return streamed_greedy(search, problem.budget, float(problem.worth.sum()))


def _better(kernels: list[Candidates], places: list[Tensor], problem: Problem) -> tuple[Picks, list[str]]:
    """Greedy among the picks of all parts, or those of one part (`places` of each) where they cover more."""

    def score(rows: Tensor) -> float:
        return float(_covered(kernels, rows) @ problem.worth)

    picks = _best_among(kernels, torch.cat(places), problem)
    scores = [score(place) for place in places]
    best = int(np.argmax(scores))
    if scores[best] <= score(picks.indices) * (1 + TIES[torch.float32]):
        return picks, []
    told = f"part {best + 1} of {len(places)} alone covers more than the best of all parts' picks, and is returned"
    return _best_among(kernels, places[best], problem), [told]


def _covered(kernels: list[Candidates], places: Tensor) -> Tensor:
    """(n,) how well these cover each point."""
    return torch.stack([kernel.highest(places).double() for kernel in kernels]).sum(0)


def _estimate(covered: Tensor, seen: Tensor, count: int) -> str:
    """What coverage of all rows to expect: the choice was made for the rows that it has seen, and suits them best."""
    known, fresh = covered[seen], covered[~seen]
    told = f"coverage is that of {len(known):,} of {count:,} rows, which the choice was made for"
    if len(fresh) < 2:
        return told
    left = (count - len(known)) / count
    estimate = float(known.sum()) / count + left * float(fresh.mean())
    error = left * float(fresh.std()) * math.sqrt(1 / len(fresh) - 1 / (count - len(known)))
    return f"{told}; {len(fresh):,} others put that of all at {estimate:.4f}, standard error {error:.2g}"
