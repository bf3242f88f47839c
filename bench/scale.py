"""Large pools: what a selection without the matrix of distances takes, and whether it picks the same.

python bench/scale.py [--points 50000] [--budget 100] [--memory 4GB] [--best-of 5]   against one pass
python bench/scale.py --peers                                           other libraries on the same pool, with limits
python bench/scale.py --agree 20000 [--methods mers]                    dense and streamed picks, in every option
python bench/scale.py --neighbours 50000 200000                         of a sample of points, by faiss and without
python bench/scale.py --grow 50000 100000 200000 --plot growth.png      two views of 512 and 768 columns, a table
python bench/scale.py --grow 50000 --memory 4GB                         the same with similarities that are kept

Every figure is of a process of its own: its seconds, and the most memory that it held.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import keepset
from keepset.selection.geometry import cloud
from keepset.selection.kept import KeptSearch
from keepset.selection.kernels import kernel
from keepset.selection.room import free_bytes, in_words
from keepset.selection.sampled import Scales, nearest_by_faiss
from keepset.selection.scales import euclidean, neighbours
from keepset.selection.streaming import COLUMNS, ROWS, ExactSearch, Kernel, row_sums
from peers import PEERS
from pools import make_pool

PATIENCE = 900  # seconds after which a peer is stopped
CUDA = torch.cuda.is_available()
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # told apart by the colour-blind too
OPTIONS: list[dict[str, Any]] = [
    {},
    {"weights": "inverse"},
    {"weights": "density"},
    {"weights": "equal"},
    {"bandwidth": "knn"},
    {"bandwidth": 0.5},
    {"bandwidth_scale": 0.5},
    {"metric": "euclidean"},
    {"metric": "literal"},
    {"kernel": "laplace"},
    {"kernel": "tophat"},
    {"fusion": "max-then-sum"},
    {"neighbours": 20},
    {"start": list(range(0, 100, 10))},
    {"point_weights": "density"},
]


@dataclass(frozen=True)
class Cost:
    """What a process took; `words` is what it says, or how it ended."""

    seconds: float
    bytes: int
    words: str


def measured(work: Callable[[], str], patience: float = 10**6, memory: int | None = None) -> Cost:
    """Of a child process, with limits on its time and memory; `work` tells its result and its own seconds."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        begin = time.perf_counter()
        try:
            words = work()
        except MemoryError:
            words = "out of memory"
        except Exception as error:
            words = f"{type(error).__name__}: {error}"[:100]
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        theirs.send((time.perf_counter() - begin, most, words))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    answered = ours.poll(patience)
    seconds, most, words = ours.recv() if answered else (patience, held(process.pid), f"stopped after {patience} s")
    process.kill()
    process.join()
    return Cost(seconds, most, words)


def held(process: int | None) -> int:
    """The most memory that a living process has held."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


# ---------------------------------------------------------------- one pool


def against_one_pass(points: int, budget: int, memory: int, times: int) -> None:
    print(f"{points:,} points of 80 clumps, 512 columns, {budget} picks, at most {in_words(memory)} for distances")
    print("| | seconds | most memory | |\n| --- | ---: | ---: | --- |")
    whole = min((measured(lambda: one_pass(points)) for _ in range(times)), key=own)
    show("one pass over the kernel", whole)
    chosen = min((measured(lambda: choose(points, budget, memory)) for _ in range(times)), key=own)
    show("keepset", chosen)
    print(f"\n{own(chosen) / own(whole):.1f} times one pass")


def one_pass(points: int) -> str:
    pool = make_pool("80 clumps", points)
    similar = Kernel([cloud(pool.points)], [kernel("rbf", "cosine", pool.bandwidth)], None)
    begin = time.perf_counter()
    for _, rows in similar.parts(ROWS):
        for _, columns in similar.parts(COLUMNS):
            row_sums(rows.to(columns), columns.worth)
    return f"{time.perf_counter() - begin:.1f} s"


def choose(points: int, budget: int, memory: int) -> str:
    pool = make_pool("80 clumps", points)
    begin = time.perf_counter()
    found = keepset.select(pool.points, budget, method="maxherding", bandwidth=pool.bandwidth, memory=memory)
    return f"{time.perf_counter() - begin:.1f} s, {found.search}, coverage {found.objective:.4f}"


def own(cost: Cost) -> float:
    """The seconds that the work itself tells: without making the pool."""
    return float(cost.words.partition(" ")[0])


def show(name: str, cost: Cost) -> None:
    print(f"| {name} | {cost.seconds:.1f} | {in_words(cost.bytes)} | {cost.words} |", flush=True)


def peers(points: int, budget: int) -> None:
    memory = int(0.9 * free_bytes(torch.device("cpu")))  # nothing is computed here: threads would not live in a child
    print(f"{points:,} points, {budget} picks; stopped after {PATIENCE} s, limited to {in_words(memory)}")
    print("| | seconds | most memory | |\n| --- | ---: | ---: | --- |")
    for peer in PEERS:
        if peer.installed:

            def work(peer: Any = peer) -> str:
                pool = make_pool("80 clumps", points)
                begin = time.perf_counter()
                picks = peer.choose(pool, budget)
                reached = keepset.coverage(pool.points, picks, method="maxherding", bandwidth=pool.bandwidth, memory=1)
                return f"{time.perf_counter() - begin:.1f} s, coverage {reached:.4f}"

            show(peer.name, measured(work, PATIENCE, memory))


def neighbours_of_a_sample(sizes: Sequence[int]) -> None:
    print("the neighbours of 4,096 points among all, 512 columns, best of three")
    print("| points | k | all distances, s | faiss, s |\n| ---: | ---: | ---: | ---: |")
    for count in sizes:
        points = cloud(make_pool("80 clumps", count).points)
        for k in (20, count // 100):
            found = Scales(points, k)
            if found.sample is None:
                raise SystemExit("a sample is taken of more than 20,000 points")
            best = [float("inf")] * 2
            for _ in range(3):
                ways = (found._rows(found.sample), nearest_by_faiss(points, found.sample, k + 1))
                for place, blocks in enumerate(ways):
                    begin = time.perf_counter()
                    neighbours(blocks, k, euclidean)
                    best[place] = min(best[place], time.perf_counter() - begin)
            print(f"| {count:,} | {k:,} | {best[0]:.2f} | {best[1]:.2f} |", flush=True)


# ---------------------------------------------------------------- the same picks


def agreement(points: int, budget: int, memory: int, methods: Sequence[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    pool = make_pool("80 clumps", points)
    views = {"clumps": pool.points[:, :64].contiguous(), "spread": torch.randn(points, 32, generator=generator)}
    print(f"{points:,} points, two views, {budget} picks\n| method | option | the same picks | objectives apart |")
    print("| --- | --- | --- | ---: |")
    for method in methods:
        for options in [*OPTIONS, *([{"uncovered": "shared"}] if "probcover" in method else [])]:
            if "probcover" in method and "fusion" in options:
                continue
            dense, streamed = (
                keepset.select(views, budget, method=method, memory=limit, **options) for limit in (2**60, memory)
            )
            first = next((i for i, pair in enumerate(zip(dense, streamed, strict=True)) if len(set(pair)) > 1), None)
            same = "yes" if first is None else f"until pick {first + 1}"
            apart = abs(dense.objective - streamed.objective) / dense.objective
            told = ", ".join(f"{k}={v}" for k, v in options.items() if k != "start") or ("start" if options else "–")
            print(f"| {method} | {told} | {same} | {apart:.1e} |", flush=True)


# ---------------------------------------------------------------- how it grows


HEADING = """| points | budget | way | seconds | scales | first sums | picks | planned | GB at most |
| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""
WARM_UP = 40_000  # points of the first call


def now() -> float:
    """Seconds, once a GPU is done with what it was given."""
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter()


@contextlib.contextmanager
def stages() -> Iterator[list[float]]:
    """When the scales were measured, and when the first sums were there."""
    marks: list[float] = []
    with contextlib.ExitStack() as patches:
        for kind in (ExactSearch, KeptSearch):

            def marked(search: Any, *given: Any, begin: Any = kind.__init__) -> None:
                marks.append(now())
                begin(search, *given)
                marks.append(now())

            patches.enter_context(mock.patch.object(kind, "__init__", marked))
        yield marks


def growth(sizes: Sequence[int], budgets: Sequence[int], memory: int, plot: Path | None) -> None:
    device = "cuda" if CUDA else "cpu"
    print(f"mers, views of 512 and 768 columns, {torch.cuda.get_device_name() if CUDA else 'CPU'}")
    if not CUDA:
        print(HEADING)
    rows: list[tuple[int, int, float]] = []
    for count in sizes:
        generator = torch.Generator(device).manual_seed(0)
        views = {}
        for name, size in (("a", 512), ("b", 768)):
            centres = torch.randn(80, size, device=device, generator=generator)
            members = torch.randint(80, (count,), device=device, generator=generator)
            noise = torch.randn(count, size, device=device, generator=generator)
            views[name] = centres[members].add_(noise, alpha=0.5)
        del noise
        if not rows and CUDA:  # the first call compiles what runs on the GPU: its own line, and no part of the figures
            few = {name: view[:WARM_UP].contiguous() for name, view in views.items()}
            begin = now()
            keepset.select(few, budgets[0], memory=1)
            print(f"a first call, of {len(few['a']):,} points, which compiles: {now() - begin:.1f} s\n", flush=True)
            print(HEADING)
        for budget in budgets:
            expected = keepset.plan(count, [512, 768], budget, memory=memory).seconds
            if CUDA:
                torch.cuda.reset_peak_memory_stats()
            begin = now()
            with stages() as marks:
                found = keepset.select(views, budget, memory=memory)
            ended = now()
            seconds = ended - begin
            parts = marks[0] - begin, marks[1] - marks[0], ended - marks[1]
            most = (
                torch.cuda.max_memory_allocated() if CUDA else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            )
            rows.append((count, budget, seconds))
            print(
                f"| {count:,} | {budget} | {found.search} | {seconds:.1f} | "
                f"{' | '.join(f'{part:.1f}' for part in parts)} | {expected:.1f} | {most / 1e9:.1f} |",
                flush=True,
            )
    if plot is not None:
        draw(rows, plot)


def draw(rows: Sequence[tuple[int, int, float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    looks = zip(sorted({budget for _, budget, _ in rows}), COLOURS, "osD^v", strict=False)
    for budget, colour, marker in looks:
        line = [(count, seconds) for count, own_budget, seconds in rows if own_budget == budget]
        axes.loglog(*zip(*line, strict=True), marker=marker, color=colour, label=f"{budget} picks")
    axes.set(xlabel="points", ylabel="seconds", title="Exact cover of two views, without the matrix")
    sizes = sorted({count for count, _, _ in rows})
    axes.set_xticks(sizes, [f"{count:,}" for count in sizes])
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def byte_count(text: str) -> int:
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * size)
    return int(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--budget", type=int, nargs="+", default=[100])
    parser.add_argument("--memory", type=byte_count, help="for distances: 4GB against one pass, else none")
    parser.add_argument("--best-of", type=int, default=5, help="times that it is run")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--neighbours", type=int, nargs="+", metavar="POINTS", help="by faiss, and without")
    parser.add_argument("--agree", type=int, metavar="POINTS")
    parser.add_argument("--methods", nargs="+", default=["mers", "maxherding", "mers-probcover", "probcover"])
    parser.add_argument("--grow", type=int, nargs="+", metavar="POINTS")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    if given.agree:
        agreement(given.agree, given.budget[0], given.memory or 1, given.methods)
    elif given.grow:
        growth(given.grow, given.budget, given.memory or 1, given.plot)
    elif given.neighbours:
        neighbours_of_a_sample(given.neighbours)
    elif given.peers:
        peers(given.points, given.budget[0])
    else:
        against_one_pass(given.points, given.budget[0], given.memory or 4 * 10**9, given.best_of)
