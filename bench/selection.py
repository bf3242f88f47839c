"""Speed and memory of soft cover (facility location), beside other libraries that search greedily.

python bench/selection.py                    everything, some minutes
python bench/selection.py --quick            a minute, to see that it works; its numbers mean little
python bench/selection.py --json out.json    the numbers, for a program
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import functools
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import keepset
from peers import PACKAGES, PEERS, Choose, Peer, keepset_picks, keepset_picks_euclidean, quiet
from pools import DIMENSIONS, MAKERS, Pool, coverage, euclidean_kernel, gaussian, kernel_matrix, make_pool

SIZES = [(500, 10), (5_000, 50), (20_000, 100)]
QUICK_SIZES = [(500, 10), (2_000, 20)]
MEMORY_SIZES, QUICK_MEMORY_SIZES, MEMORY_BUDGET = [5_000, 20_000], [3_000], 100
CLASSES, QUICK_CLASSES, CLASS_POINTS, CLASS_BUDGET = 100, 5, 500, 20
PATIENCE = 60.0  # seconds; what takes longer is run once
SAME = 1e-4  # relative difference of coverage up to which two choices count as equally good
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

NOTES = """\
Seconds: the best of the runs. Everybody but scikit-activeml is given the same bandwidth and, but for keepset, the same
kernel matrix, whose making is in its time. scikit-activeml makes its own kernel exp(−γd²), which equals the others' at
distance 0 and at the bandwidth; whether its coverage is the same is asked of keepset with that kernel.
Coverage: the mean over points of the largest kernel to a pick, in float64, for all under the first kernel.
apricot compiles its loops anew in every call; in the second row of it they are compiled once, before the timing."""

console = Console(width=150)
progress = Console(stderr=True)


# ---------------------------------------------------------------- speed


@dataclass(frozen=True)
class Timing:
    """One row: a method on a pool."""

    pool: str
    points: int
    budget: int
    method: str
    seconds: float | None = None
    runs: int = 0
    coverage: float | None = None
    same: bool | None = None
    """Whether the coverage is that of keepset, to one part in ten thousand."""
    remark: str = ""


def best_of(repeats: int, call: Callable[[], object]) -> tuple[float, int, Any]:
    """The shortest of several runs in seconds, how many there were, and the last result."""
    times: list[float] = []
    result: object = None
    while len(times) < repeats and (not times or times[0] <= PATIENCE):
        result = None  # the former result must not be in the way of the next
        gc.collect()
        begin = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begin)
    return min(times), len(times), result


def time_pool(pool: Pool, budget: int, repeats: int, peers: Sequence[Peer], slow_peers: bool) -> list[Timing]:
    row = functools.partial(Timing, pool.name, len(pool), budget)
    seconds, runs, _ = best_of(repeats, lambda: kernel_matrix(pool).shape)
    rows = [_told(row("kernel matrix alone", seconds, runs))]
    seconds, runs, picks = best_of(repeats, lambda: keepset_picks(pool, budget))
    reached = coverage(pool, picks)
    rows.append(_told(row("keepset", seconds, runs, reached)))
    return rows + [_told(_time_peer(row, peer, pool, budget, repeats, reached, slow_peers)) for peer in peers]


def _time_peer(
    row: Callable[..., Timing],
    peer: Peer,
    pool: Pool,
    budget: int,
    repeats: int,
    reached: float,
    slow_peers: bool,
) -> Timing:
    if not peer.installed:
        return row(peer.name, remark="not installed")
    if peer.slow_from is not None and len(pool) >= peer.slow_from and not slow_peers:
        return row(peer.name, remark="not run")
    seconds, runs, picks = best_of(repeats, lambda: peer.choose(pool, budget))
    remark = "one run" if runs == 1 < repeats else ""
    return row(peer.name, seconds, runs, coverage(pool, picks), _same(peer, pool, picks, reached), remark)


def _same(peer: Peer, pool: Pool, picks: list[int], reached: float) -> bool:
    if not peer.own_kernel:
        return abs(coverage(pool, picks) / reached - 1) <= SAME
    ours = coverage(pool, keepset_picks_euclidean(pool, len(picks)), euclidean_kernel)
    return abs(coverage(pool, picks, euclidean_kernel) / ours - 1) <= SAME


def _told(timing: Timing) -> Timing:
    """Pass on, with a line of progress: a long run can be followed."""
    spent = timing.remark if timing.seconds is None else f"{timing.seconds:.4g} s"
    progress.print(f"{timing.pool}, n = {timing.points}: {timing.method}: {spent}", style="dim", highlight=False)
    return timing


def warm_up(peers: Sequence[Peer]) -> None:
    """Imports, thread pools and compilers start here and not in a timed run."""
    pool = make_pool("Gaussian", 300)
    choices: list[Choose] = [keepset_picks, keepset_picks_euclidean, *(p.choose for p in peers if p.installed)]
    for choose in choices:
        choose(pool, 5)


def speed(sizes: Sequence[tuple[int, int]], repeats: int, peers: Sequence[Peer], slow_peers: bool) -> list[Timing]:
    warm_up(peers)
    rows: list[Timing] = []
    for count, budget in sizes:
        for name in MAKERS:
            rows += time_pool(make_pool(name, count), budget, repeats, peers, slow_peers)
    return rows


def speed_cells(rows: Sequence[Timing]) -> list[list[str]]:
    """The ratios are to the kernel matrix and to keepset on the same pool."""
    cells = []
    for row in rows:
        same_pool = {
            other.method: other.seconds for other in rows if (other.pool, other.points) == (row.pool, row.points)
        }
        kernel, ours = same_pool["kernel matrix alone"], same_pool["keepset"]
        cells.append(
            [
                row.pool,
                f"{row.points:,}",
                str(row.budget),
                row.method,
                row.remark
                if row.seconds is None
                else f"{row.seconds:.4g}" + (f" ({row.remark})" if row.remark else ""),
                _ratio(row.seconds, kernel),
                _ratio(row.seconds, ours),
                "–" if row.coverage is None else f"{row.coverage:.6f}",
                "–" if row.same is None else "yes" if row.same else "NO",
            ]
        )
    return cells


SPEED_HEADS = ["pool", "n", "b", "method", "seconds", "/ kernel", "/ keepset", "coverage", "same as keepset's"]


def _ratio(seconds: float | None, other: float | None) -> str:
    return "–" if seconds is None or other is None else f"{seconds / other:.2f}"


# ---------------------------------------------------------------- memory


MEMORY_CASES: dict[str, dict[str, Any]] = {
    "maxherding, bandwidth given": {"method": "maxherding", "bandwidth": 1.0},
    "mers, two views, median bandwidth": {"method": "mers"},
    "mers, two views, bandwidth given": {"method": "mers", "bandwidth": 1.0},
}


@dataclass(frozen=True)
class Memory:
    """The most a call held beyond what the process held before it."""

    case: str
    points: int
    megabytes: float | None
    matrices: float | None
    """In matrices of n² float32."""


def memory(sizes: Sequence[int], threads: int) -> list[Memory]:
    """Each case in a process of its own: what another has freed cannot serve it."""
    rows: list[Memory] = []
    for count in sizes:
        for case in MEMORY_CASES:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                rows.append(fresh.submit(peak_of, case, count, threads).result())
    return rows


def peak_of(case: str, count: int, threads: int) -> Memory:
    torch.set_num_threads(threads)
    options = MEMORY_CASES[case]
    _choose_views(2_100, options)  # above the sizes at which the code takes its roads for many points
    views = _views(count, options)
    _give_back_freed()
    before = _status_kilobytes("VmRSS")
    if before is None or not _reset_high_water():
        return Memory(case, count, None, None)
    keepset.select(views, MEMORY_BUDGET, **options)
    grown = ((_status_kilobytes("VmHWM") or 0) - before) * 1024
    return Memory(case, count, grown / 1e6, grown / (4 * count**2))


def _choose_views(count: int, options: dict[str, Any]) -> None:
    keepset.select(_views(count, options), 10, **options)


def _views(count: int, options: dict[str, Any]) -> list[torch.Tensor]:
    seeds = range(2 if options["method"] == "mers" else 1)
    return [gaussian(count, torch.Generator().manual_seed(seed)) for seed in seeds]


def _give_back_freed() -> None:
    """What the warm-up freed goes back to the system, else it would serve the call unseen."""
    gc.collect()
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def _status_kilobytes(field: str) -> int | None:
    """A line of the process's status; getrusage will not do, a child inherits its parent's high-water mark there."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(
        (int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field + ":")), None
    )


def _reset_high_water() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def memory_cells(rows: Sequence[Memory]) -> list[list[str]]:
    return [
        [
            row.case,
            f"{row.points:,}",
            "not measured" if row.megabytes is None else f"{row.megabytes:,.0f}",
            "–" if row.matrices is None else f"{row.matrices:.2f}",
        ]
        for row in rows
    ]


MEMORY_HEADS = [f"peak memory of keepset, b = {MEMORY_BUDGET}", "n", "MB", "in n² floats"]


# ---------------------------------------------------------------- per class


def per_class(classes: int, repeats: int) -> dict[str, Any]:
    """Two views of many classes, as a learner has them at the end of an episode."""
    generator = torch.Generator().manual_seed(0)
    count = classes * CLASS_POINTS
    views = {name: torch.randn(count, DIMENSIONS, generator=generator) for name in ("first", "second")}
    labels = torch.arange(classes).repeat_interleave(CLASS_POINTS)
    seconds, runs, _ = best_of(repeats, lambda: keepset.select_per_class(views, labels, CLASS_BUDGET, method="mers"))
    return {
        "classes": classes,
        "points a class": CLASS_POINTS,
        "budget": CLASS_BUDGET,
        "seconds": seconds,
        "runs": runs,
    }


def per_class_cells(found: dict[str, Any]) -> list[list[str]]:
    seconds = found["seconds"]
    shape = f"{found['classes']} classes × {found['points a class']} points × 2 views × {DIMENSIONS}"
    return [[shape, str(found["budget"]), f"{seconds:.3f}", f"{1000 * seconds / found['classes']:.1f}"]]


PER_CLASS_HEADS = ["select_per_class, mers", "b a class", "seconds", "ms a class"]


# ---------------------------------------------------------------- the report


def machine(threads: int, peers: Sequence[Peer]) -> dict[str, str]:
    facts = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads used": str(threads),
        "load before": _load(),
        "python": platform.python_version(),
    }
    packages = ("torch", "numpy", "keepset", *(PACKAGES if peers else ()))
    return facts | {package: _version(package) for package in packages}


def _load() -> str:
    """Over 1, 5 and 15 minutes. With other work on the cores, threads wait for each other, and times grow manyfold."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def show(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The table twice: for the eye, and as markdown to paste."""
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    print(markdown(heads, rows))
    print()


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def size(text: str) -> tuple[int, int]:
    count, _, budget = text.replace("_", "").partition(":")
    if not (count.isdigit() and budget.isdigit() and 0 < int(budget) < int(count)):
        raise argparse.ArgumentTypeError(f"must be POINTS:BUDGET, such as 5000:50, got {text!r}")
    return int(count), int(budget)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=size, nargs="+", metavar="POINTS:BUDGET", help="500:10 5000:50 20000:100")
    parser.add_argument("--memory-sizes", type=int, nargs="*", metavar="POINTS", help="5000 20000; none to skip it")
    parser.add_argument("--repeats", type=int, default=5, help="the best of so many runs")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="other libraries too")
    parser.add_argument("--slow-peers", action="store_true", help="also those that take minutes")
    parser.add_argument("--quick", action="store_true", help="small sizes, two runs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers there")
    asked = parser.parse_args()
    if asked.quick:
        asked.repeats = min(asked.repeats, 2)
    asked.sizes = asked.sizes or (QUICK_SIZES if asked.quick else SIZES)
    if asked.memory_sizes is None:
        asked.memory_sizes = QUICK_MEMORY_SIZES if asked.quick else MEMORY_SIZES
    return asked


def fix_threads(threads: int) -> None:
    """Start again with the thread counts in the environment: the libraries read them while they are loaded."""
    wanted = dict.fromkeys(THREAD_VARIABLES, str(threads))
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted})
    torch.set_num_threads(threads)


def main() -> None:
    asked = read_arguments()
    fix_threads(asked.threads)
    quiet()
    peers = PEERS if asked.peers else ()
    facts = machine(asked.threads, peers)
    show(["machine", ""], [list(fact) for fact in facts.items()])
    timings = speed(asked.sizes, asked.repeats, peers, asked.slow_peers)
    show(SPEED_HEADS, speed_cells(timings))
    print(NOTES + "\n")
    used = memory(asked.memory_sizes, asked.threads)
    if used:
        show(MEMORY_HEADS, memory_cells(used))
    classes = per_class(QUICK_CLASSES if asked.quick else CLASSES, asked.repeats)
    show(PER_CLASS_HEADS, per_class_cells(classes))
    facts["load after"] = _load()
    print(f"Load before {facts['load before']}, after {facts['load after']}: trust no times if others were at work.")
    if asked.json:
        found = {
            "machine": facts,
            "speed": [asdict(row) for row in timings],
            "memory": [asdict(row) for row in used],
            "per class": classes,
        }
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
