"""Two rounds of choice, over views in files: the shards, the rounds without a cluster, and the same on a real Ray."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import keepset
from keepset.distributed import parts, sample, select_distributed, shards
from keepset.distributed.merge import Candidates
from keepset.distributed.select import _split
from keepset.distributed.shards import MappedFile, View, open_views
from keepset.selection import sampled
from keepset.selection.geometry import cloud
from keepset.selection.kernels import kernel
from keepset.selection.streaming import ExactSearch, Kernel

Rows = np.ndarray[Any, Any]
PAGE = Path(__file__).parent.parent / "docs" / "distributed.md"


def make_pool(count: int, clumps: int, seed: int = 0) -> dict[str, Rows]:
    """Clumps in one view, none in the other."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(clumps, 24))
    clumped = centres[rng.integers(clumps, size=count)] + rng.normal(size=(count, 24))
    return {"clumped": clumped.astype(np.float32), "spread": rng.normal(size=(count, 10)).astype(np.float32)}


# ---------------------------------------------------------------- shards


@pytest.fixture
def table() -> Rows:
    return np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


def write_parquet(path: Path, table: Rows, layout: str, group: int = 7) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    if layout == "columns":
        columns = {f"x{number}": table[:, number] for number in range(table.shape[1])}
    elif layout == "fixed":
        columns = {"x": arrow.FixedSizeListArray.from_arrays(arrow.array(table.ravel()), table.shape[1])}
    else:
        kind = arrow.list_ if layout == "list" else arrow.large_list
        columns = {"x": arrow.array(table.tolist(), kind(arrow.from_numpy_dtype(table.dtype)))}
    parquet.write_table(arrow.table(columns), path, row_group_size=group)
    return path


def assert_same(view: View, table: Rows) -> None:
    """Size, ranges and rows are those of the table, also after a journey to another process."""
    view = pickle.loads(pickle.dumps(view))
    assert (len(view), view.columns, view.dtype) == (*table.shape, table.dtype)
    for first, stop in ((0, len(table)), (5, 6), (13, 31), (4, 4)):
        assert np.array_equal(view.range(first, stop), table[first:stop])
    rows = np.array([0, 6, 7, 20, 21, 22, len(table) - 1])
    assert np.array_equal(view.rows(rows), table[rows])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_view__rows_of_npy_shards_are_stacked(tmp_path: Path, table: Rows, dtype: Any) -> None:
    table = table.astype(dtype)
    np.save(tmp_path / "a.npy", table[:20])
    np.save(tmp_path / "b.npy", np.asfortranarray(table[20:21]))
    np.save(tmp_path / "c.npy", np.asfortranarray(table[21:]))
    assert_same(View("x", [tmp_path / "a.npy", str(tmp_path / "b.npy"), tmp_path / "c.npy"]), table)


@pytest.mark.parametrize("layout", ["columns", "fixed", "list", "large"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_view__rows_of_parquet_shards_are_stacked(
    tmp_path: Path, table: Rows, layout: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "BATCH", 3)
    table = table.astype(dtype)
    paths = [write_parquet(tmp_path / f"{first}.parquet", table[first : first + 25], layout) for first in (0, 25)]
    assert_same(View("x", paths), table)


def test_view__arrays_maps_and_their_parts(tmp_path: Path, table: Rows) -> None:
    table.tofile(tmp_path / "raw")
    mapped: Rows = np.memmap(tmp_path / "raw", np.float32, "r", shape=table.shape)
    later: Rows = np.memmap(tmp_path / "raw", np.float32, "r", offset=4 * 3 * 10, shape=(40, 3))
    changed: Rows = np.memmap(tmp_path / "raw", np.float32, "c", shape=table.shape)
    changed[:] *= 2
    for source, expected in ((table, table), (mapped, table), (later, table[10:]), (mapped[8:], table[8:])):
        assert_same(View("x", source), expected)
    assert_same(View("x", changed), 2 * table)
    assert_same(View("x", [mapped, table]), np.concatenate([table, table]))
    assert isinstance(View("x", mapped).shards[0], MappedFile)
    assert len(pickle.dumps(View("x", later))) < 1000, "a map travels as the name of its file"


def test_view__nothing_is_read_before_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (2**24, 256))  # 17 GB of holes
    view = View("x", path)
    assert (len(view), view.columns) == (2**24, 256)
    assert not view.rows(np.array([3, 2**24 - 1])).any()


def test_view__a_file_that_goes_away_is_named(tmp_path: Path, table: Rows) -> None:
    np.save(tmp_path / "a.npy", table)
    paths = [tmp_path / "a.npy", write_parquet(tmp_path / "a.parquet", table, "list")]
    for path in paths:
        view = View("x", path)
        path.unlink()
        with pytest.raises(ValueError, match=rf"no such file: .*{path.name}; on a cluster it must lie where"):
            view.range(0, 3)


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda folder: folder / "none.npy", r"no such file: .*none\.npy"),
    "missing parquet": (lambda folder: folder / "none.parquet", r"no such file: .*none\.parquet"),
    "unknown ending": (lambda folder: folder / "a.csv", r"must end in \.npy or \.parquet, got .*a\.csv"),
    "empty list": (lambda _: [], "must name at least one file"),
    "number": (lambda _: 3, r"sources\['x'\] must be a numpy array, a file .*got int"),
    "tensor in a list": (lambda _: [torch.ones(2, 2)], r"sources\['x'\]\[0\] must be a numpy array.*got Tensor"),
    "integers": (lambda _: np.ones((3, 2), int), r"sources\['x'\] must hold float16.*got int64; convert"),
    "vector": (lambda _: np.ones(3), r"must have shape \(points, columns\), got \(3,\)"),
    "no rows": (lambda folder: saved(folder, np.ones((0, 2))), r"a\.npy must have at least one point"),
    "integers in a file": (lambda folder: saved(folder, np.ones((3, 2), int)), r"a\.npy must hold float16"),
    "objects": (lambda folder: saved(folder, np.array([[{}]])), r"a\.npy holds Python objects"),
    "truncated": (lambda folder: cut(saved(folder, np.ones((30, 2)))), r"a\.npy is damaged or not readable"),
    "truncated parquet": (lambda folder: cut(parquet(folder, "list")), r"a\.parquet is damaged or not readable"),
    "empty file": (lambda folder: cut(saved(folder, np.ones((3, 2))), 0), r"a\.npy is damaged or not readable"),
    "not parquet": (lambda folder: saved(folder, np.ones((3, 2))).rename(folder / "a.parquet"), "damaged"),
    "columns differ": (lambda folder: [np.ones((3, 2)), parquet(folder, "list")], r"has 2 and .*a\.parquet has 3"),
}  # fmt: skip


def saved(folder: Path, array: Rows) -> Path:
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


def parquet(folder: Path, layout: str) -> Path:
    return write_parquet(folder / "a.parquet", np.ones((9, 3), np.float32), layout)


def cut(path: Path, size: int = 200) -> Path:
    path.write_bytes(path.read_bytes()[:size])
    return path


@pytest.mark.parametrize("case", BAD)
def test_open_views__what_cannot_be_used_is_named(case: str, tmp_path: Path) -> None:
    make, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        open_views({"x": make(tmp_path)})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": [1, 2], "x": [0.5, 1.0]}, r"got id \(int64\), x \(double\); write the view alone"),
        ({"x": [[1.0, 2.0], [3.0]]}, "rows without a list, or with one of another length"),
        ({"x": [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]}, r"must have 2 numbers in every row.*rows 0\.\.2"),
        ({"x": [[1.0, 2.0], [3.0, None]]}, "rows 0..1 have longer, shorter or incomplete lists"),
        ({"x": [0.5, None]}, "has a missing value in its row 1"),
        ({"x": [["a"], ["b"]]}, r"got x \(list<.*string>\)"),
    ],
)
def test_parquet__other_layouts_and_gaps_are_refused(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=rf"a\.parquet.*{words}"):
        View("x", tmp_path / "a.parquet").range(0, 2)


def test_parquet__a_damaged_page_is_told_when_it_is_read(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    path = write_parquet(tmp_path / "a.parquet", table, "columns", group=4000)
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.parquet is damaged or not readable"):
        View("x", path).range(0, 4000)


def test_parquet__without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"a\.parquet needs pyarrow; pip install keepset\[parquet\]"):
        View("x", tmp_path / "a.parquet")


def test_open_views__unequal_views_and_no_views() -> None:
    with pytest.raises(ValueError, match=r"equally many rows, but 'a' has 3 .* and 'b' has 4 .*shards of every view"):
        open_views({"a": np.ones((3, 2)), "b": [np.ones((2, 2)), np.ones((2, 2))]})
    for sources in ({}, np.ones((3, 2)), {3: np.ones((3, 2))}):
        with pytest.raises(ValueError, match="sources must"):
            open_views(sources)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the rounds, without a cluster


class TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class LostError(Exception): ...


class Inline:
    """Ray's words, done on the spot, the last task first; what is sent is sent as bytes."""

    exceptions = SimpleNamespace(RayTaskError=TaskError, RayError=LostError)

    def __init__(self) -> None:
        self.running, self.given, self.asked, self.cancelled = True, dict[str, Any](), dict[str, Any](), 0

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **given: Any) -> None:
        self.running, self.given = True, given

    def shutdown(self) -> None:
        self.running = False

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **asked: Any) -> Any:
        self.asked = asked
        return lambda function: SimpleNamespace(remote=lambda *given: Task(function, given))

    def wait(self, tasks: list[Any], **_: Any) -> Any:
        return tasks[-1:], tasks[:-1]

    def get(self, task: Any) -> Any:
        try:
            return task.function(*pickle.loads(pickle.dumps(task.given)))
        except Exception as error:
            raise TaskError(error) from error

    def cancel(self, *_: Any, **__: Any) -> None:
        self.cancelled += 1


class Task:
    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.function, self.given = function, given


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    fake = Inline()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


NUMBERS: dict[str, Any] = {"weights": {"clumped": 2, "spread": 1}, "bandwidth": {"clumped": 0.4, "spread": 0.6}}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(
    "options",
    [
        NUMBERS,
        {},
        {"fusion": "max-then-sum"},
        {"method": "maxherding", "view": "spread"},
        {"method": "mers-pure"},
        {"method": "mers-pure", **NUMBERS, "bandwidth_scale": 0.7},
        {"kernel": "laplace", "metric": "euclidean", "bandwidth": "knn", "bandwidth_scale": 0.5, "neighbours": 9},
    ],
    ids=str,
)
def test_one_part__is_the_exact_choice(options: dict[str, Any]) -> None:
    pool = make_pool(600, 20)
    exact = keepset.select(pool, 25, **options)
    found = select_distributed(pool, 25, parts=1, **options)
    assert list(found) == list(exact)
    assert found.search == "distributed"
    assert (found.method, found.k, found.notes) == (exact.method, exact.k, exact.notes)
    assert exact.notes == (("there are no labels: every point counts alike",) if found.method == "mers-pure" else ())
    assert found.weights == pytest.approx(exact.weights, rel=1e-6)
    assert found.scales == pytest.approx(exact.scales, rel=1e-6)
    assert found.objective == pytest.approx(exact.objective, rel=1e-6)
    assert np.asarray(found.gains) == pytest.approx(np.asarray(exact.gains), rel=1e-3, abs=1e-6)
    for name, share in exact.shares.items():
        assert np.asarray(found.shares[name]) == pytest.approx(np.asarray(share), abs=5e-3)


@pytest.mark.usefixtures("inline")
def test_mers_pure__in_parts_is_mers_at_half_the_bandwidth_in_the_same_parts() -> None:
    pool = make_pool(600, 20)
    pure, plain = (
        select_distributed(pool, 25, parts=3, **options)
        for options in ({"method": "mers-pure"}, {"method": "mers", "bandwidth_scale": 0.5})
    )
    assert list(pure) == list(plain)
    assert pure.scales == plain.scales
    assert pure.notes == ("there are no labels: every point counts alike", *plain.notes)


def greedy(similar: Rows, candidates: list[int], budget: int) -> tuple[list[int], float]:
    """Written out: the picks, and how they cover all rows."""
    covered, picks = np.zeros(len(similar)), list[int]()
    for _ in range(budget):
        gains = {row: np.maximum(similar[row] - covered, 0).mean() for row in candidates if row not in picks}
        picks.append(max(gains, key=lambda row: gains[row]))
        covered = np.maximum(covered, similar[picks[-1]])
    return picks, float(covered.mean())


@pytest.mark.usefixtures("inline")
def test_rounds__the_best_of_what_the_parts_keep_or_the_best_part() -> None:
    pool = make_pool(400, 12)
    similar = np.zeros((400, 400))
    for (name, view), alpha in zip(pool.items(), (2 / 3, 1 / 3), strict=True):
        unit = view.astype(float) / np.linalg.norm(view.astype(float), axis=1, keepdims=True)
        similar += alpha * np.exp(-((1 - unit @ unit.T) ** 2) / (2 * NUMBERS["bandwidth"][name] ** 2))
    alone = 0
    for generator in range(8):
        found = select_distributed(pool, 10, parts=3, generator=generator, **NUMBERS)
        seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(generator)))
        kept = [
            rows[greedy(similar[np.ix_(rows, rows)], list(range(len(rows))), 10)[0]]
            for rows in _split(400, 10, 3, seed)[0]
        ]
        choices = [greedy(similar, rows.tolist(), 10) for rows in (np.concatenate(kept), *kept)]
        best = max(choices, key=lambda choice: choice[1])
        alone += best != choices[0]
        assert list(found) == best[0]
        assert found.objective == pytest.approx(best[1], rel=1e-5)
        assert any("alone covers more" in note for note in found.notes) == (best != choices[0])
    assert 0 < alone < 8, "both occur"


@pytest.mark.usefixtures("inline")
def test_seed__gives_the_same_and_another_one_another() -> None:
    pool = make_pool(500, 20)
    first, again, other = (select_distributed(pool, 20, parts=4, generator=seed) for seed in (3, 3, 4))
    assert list(first) == list(again)
    assert first.objective == again.objective
    assert list(first) != list(other)
    assert len(set(first)) == 20


@pytest.mark.usefixtures("inline")
def test_stochastic__in_the_first_round() -> None:
    pool = make_pool(500, 20)
    first, again = (select_distributed(pool, 20, parts=2, search="stochastic", epsilon=0.3) for _ in range(2))
    exact = select_distributed(pool, 20, parts=2)
    assert list(first) == list(again) != list(exact)
    assert first.objective > 0.95 * exact.objective


@pytest.mark.usefixtures("inline")
def test_estimate__of_all_rows_holds_within_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 300 of 4,000 rows; what the choice was made for looks better covered than all are."""
    monkeypatch.setattr(sample, "TARGETS", 300)
    pool, off = make_pool(4000, 40), list[float]()
    for seed in range(6):
        found = select_distributed(pool, 40, parts=3, generator=seed)
        told = re.search(r"of 4,000 rows.*others put that of all at ([.\d]+), standard error ([.\d]+)", found.notes[-1])
        assert told, found.notes
        true = keepset.coverage(pool, found.indices, weights=found.weights, bandwidth=found.scales)
        assert found.objective > true
        off.append((float(told[1]) - true) / float(told[2]))
    assert 0.2 < np.sqrt(np.mean(np.square(off))) < 2
    assert any(
        "among 300 of 4,000 rows, with 8 of the neighbours there for the 100 among all" in n for n in found.notes
    )


@pytest.mark.usefixtures("inline")
def test_scales__of_a_sample_are_near_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "TARGETS", 1000)
    for module in (sample, sampled):
        monkeypatch.setattr(module, "SAMPLED", 400)
    pool = make_pool(3000, 40)
    exact, found = keepset.select(pool, 30), select_distributed(pool, 30, parts=2)
    assert found.k == exact.k == 100
    assert found.scales == pytest.approx(exact.scales, rel=0.05)
    assert found.weights == pytest.approx(exact.weights, rel=0.1)
    assert any("weight from a sample of 400 of 1,000 points, standard error" in note for note in found.notes)
    alone = select_distributed({name: view[:1200] for name, view in pool.items()}, 900)
    assert any("a single one all views weigh the same" in note for note in alone.notes)


@pytest.mark.usefixtures("inline")
def test_parts__as_many_as_cores_and_each_as_large_as_the_budget() -> None:
    pool, told = make_pool(60, 5), list[tuple[int, int]]()
    select_distributed(pool, 5, on_part=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]
    few = select_distributed(pool, 25, parts=5)
    assert re.match(r"[12] of 5 parts: each must hold as many rows as the budget, 25", few.notes[0])
    assert sorted(select_distributed(pool, 60)) == list(range(60))


def test_split__is_a_partition_of_independent_rows() -> None:
    split, notes = _split(30_000, 10, 3, 5)
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(30_000))
    assert all((np.diff(rows) > 0).all() for rows in split)
    assert max(abs(len(rows) - 10_000) for rows in split) < 4 * np.sqrt(30_000 * 2 / 9)
    assert not notes


def test_candidates__kernel_sums_are_those_of_all_points() -> None:
    points = cloud(torch.randn(90, 4, generator=torch.Generator().manual_seed(0)))
    worth = torch.linspace(0, 1, 90)
    similar = [kernel("rbf", "cosine", 0.5)]
    none = torch.empty(0, dtype=torch.int64)
    some = ExactSearch([Candidates([points], similar, worth, 30)], none)
    everyone = ExactSearch([Kernel([points], similar, worth)], none)
    assert torch.allclose(some.bounds[:30], everyone.bounds[:30])
    for search in (some, everyone):
        search.allowed[30:] = False
        search.take(7)
    for _ in range(20):
        (pick, gain), (expected, all_gain) = some.best(), everyone.best()
        assert pick == expected
        assert torch.allclose(gain, all_gain, atol=1e-6)
        some.take(pick)
        everyone.take(pick)


@pytest.mark.usefixtures("inline")
def test_page__its_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert shown
    for code in shown:
        exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "merz"}, r"unknown selector 'merz'; did you mean 'mers'\? see keepset ls"),
        ({"method": "probcover"}, r"method must be one of mers, mers-pure, maxherding \(soft cover\), got 'probcover'"),
        ({"method": "random"}, "keepset.select takes the others"),
        ({"method": len}, "method must be one of"),
        ({"start": [1]}, "start is not for select_distributed; choose on one machine"),
        ({"point_weights": np.ones(40)}, "point_weights is not for select_distributed"),
        ({"point_weights": "density"}, "point_weights is not for select_distributed"),
        ({"method": "mers-pure", "point_weights": "purity"}, "or by 'purity' with keepset.select_per_class"),
        ({"method": "mers-pure", "point_power": 3}, "point_power is not for select_distributed"),
        ({"on_pick": print}, "on_pick is not for select_distributed; on_part"),
        ({"uncovered": "shared"}, "uncovered='shared' is for hard cover"),
        ({"bandwith": 1}, "unknown option 'bandwith' for mers; did you mean 'bandwidth'?"),
        ({"view": "spread"}, "option 'view' is not for mers"),
        ({"weights": {"a": 1}}, "weights names an unknown view 'a'"),
        ({"neighbours": 40}, r"neighbours must be in 1\.\.39"),
        ({"budget": 41}, r"budget must be in 1\.\.40 \(the number of rows\), got 41"),
        ({"parts": 0}, r"parts must be in 1\.\.40"),
        ({"sources": {"x": np.ones((1, 2))}}, "at least 2 rows"),
        ({"sources": {"x": np.ones((40, 2))}}, "view 'x' has no scale: its points coincide; give bandwidth="),
    ],
    ids=str,
)
def test_refused__by_name_before_any_part_is_sent(given: dict[str, Any], words: str, inline: Inline) -> None:
    with pytest.raises(ValueError, match=words):
        select_distributed(**{"sources": make_pool(40, 4), "budget": 4, **given})
    assert not inline.asked


def test_part__that_fails_is_named_with_its_row(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "TARGETS", 10)
    pool = make_pool(300, 4)
    pool["spread"][123] = np.nan
    with pytest.raises(
        ValueError, match=r"part \d of 3: views\['spread'\] must be finite.* in row 123; drop or repair"
    ):
        select_distributed(pool, 4, parts=3, generator=1)
    monkeypatch.setattr(parts, "select_part", lambda *_: 1 / 0)
    with pytest.raises(RuntimeError, match="part 3 of 3 failed: ZeroDivisionError: division by zero"):
        select_distributed(make_pool(300, 4), 4, parts=3)
    assert inline.cancelled >= 2


def test_part__that_is_lost_for_good_is_named(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: Any) -> None:
        raise LostError

    monkeypatch.setattr(inline, "get", lose)
    with pytest.raises(RuntimeError, match=r"part 2 of 2 was lost with its worker, 4 times .*raise parts="):
        select_distributed(make_pool(40, 4), 4, parts=2)


def test_ray__is_started_where_there_is_none_and_stopped(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    select_distributed(make_pool(40, 4), 4)
    assert inline.running, "a connection of the caller's stays"
    assert inline.asked == {"num_cpus": 1, "max_retries": 3}
    inline.running = False
    select_distributed(make_pool(40, 4), 4, address="head:6379")
    assert inline.given["address"] == "head:6379"
    assert not inline.running

    def fail(**_: Any) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(inline, "init", fail)
    with pytest.raises(ValueError, match="cannot reach Ray at head:6379: nobody there"):
        select_distributed(make_pool(40, 4), 4, address="head:6379")


def test_ray__missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install keepset\[ray\]"):
        select_distributed(make_pool(40, 4), 4)


# ---------------------------------------------------------------- on a real Ray


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_real_ray__reaches_what_exact_search_reaches_and_tells_errors_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 points in 80 clumps, in shards of both kinds, of which one machine could hold all."""
    pool, told = make_pool(4000, 80), list[tuple[int, int]]()
    np.save(tmp_path / "a.npy", pool["clumped"][:1500])
    np.save(tmp_path / "b.npy", pool["clumped"][1500:])
    spread = write_parquet(tmp_path / "spread.parquet", pool["spread"], "fixed", group=1000)
    sources: dict[str, Any] = {"clumped": [tmp_path / "a.npy", tmp_path / "b.npy"], "spread": spread}
    found = select_distributed(sources, 80, on_part=lambda *done: told.append(done))
    exact = keepset.select(pool, 80)
    reached = keepset.coverage(pool, found.indices)
    assert told == [(1, 2), (2, 2)]
    assert reached > 0.98 * exact.objective
    assert found.objective == pytest.approx(reached, rel=1e-5), "all rows are covered in the second round"
    assert found.weights == pytest.approx(exact.weights)
    assert all(later <= earlier for earlier, later in pairwise(found.gains))

    monkeypatch.setattr(sample, "TARGETS", 10)
    pool["spread"][1234] = 0
    with pytest.raises(ValueError, match=r"^part \d of 3: views\['spread'\] must have no zero vectors.* in row 1234;"):
        select_distributed(pool, 4, parts=3)


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_real_ray__a_killed_worker_is_replaced_and_the_choice_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, killed, written = make_pool(600, 20), tmp_path / "killed", parts.select_part
    given: dict[str, Any] = {"parts": 4, "memory": 1, **NUMBERS}

    def select_part(*work: Any) -> Any:
        """The first worker to come here dies in it."""
        with contextlib.suppress(FileExistsError):
            killed.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return written(*work)

    expected = select_distributed(pool, 20, **given)
    monkeypatch.setattr(parts, "select_part", select_part)
    assert list(select_distributed(pool, 20, **given)) == list(expected)
    assert killed.exists()
