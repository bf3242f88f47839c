"""A plan tells the way that select takes, and what it takes, before anything runs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import keepset
from keepset.selection import planning, soft
from keepset.selection.kept import KeptSearch, kept_bytes
from keepset.selection.planning import COVERS, passes, plan


@pytest.fixture(autouse=True)
def fixed_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nanoseconds a similarity, one for neighbours, 0.1 for one kept, whatever the machine is doing."""
    monkeypatch.setattr(planning, "value_seconds", lambda _size, _device, _dtype: 1e-8)
    monkeypatch.setattr(planning, "neighbour_seconds", lambda _k, _device, _dtype: 1e-9)
    monkeypatch.setattr(planning, "kept_seconds", lambda: 1e-10)


@pytest.mark.parametrize("method", COVERS)
@pytest.mark.parametrize("fusion", ["sum-then-max", "max-then-sum"])
@pytest.mark.parametrize("memory", [10**9, 4 * 400**2, 4 * 400**2 - 1, 2 * 4 * 400**2, 6 * 400**2, 6 * 400**2 - 1, 9])
def test_plan__names_the_way_that_select_takes(method: str, fusion: str, memory: int) -> None:
    views = [torch.randn(400, size, generator=torch.Generator().manual_seed(size)) for size in (6, 9)]
    told = plan(400, [6, 9], 3, method=method, fusion=fusion, memory=memory)
    assert told.way == keepset.select(views, 3, method=method, fusion=fusion, memory=memory).search


def test_plan__stochastic_is_told_as_such() -> None:
    assert plan(400, 6, 3, search="stochastic", memory=10**9).way == "stochastic"


@pytest.mark.parametrize(
    ("free", "way"), [(2 * 40_000_000_000, "dense"), (40_000_000_000, "streamed"), (10**8, "distributed")]
)
def test_plan__goes_by_what_is_free(free: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "free_bytes", lambda _device: free)
    found = plan(100_000, [256], 10, device="cpu")
    assert found.way == way
    assert found.matrix == 40_000_000_000
    assert (found.bytes > free) == (way == "distributed")
    assert ("--engine ray" in str(found)) == (way == "distributed")


def test_plan__a_million_points_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU: scales from samples of 4,096, twice, then 5.35 passes over 10¹² similarities of two views."""
    monkeypatch.setattr(planning, "free_bytes", lambda _device: 10**10)
    found = plan(1_000_000, [512, 768], 100, device="cpu")
    scales = 1e6 * 8192 * (0.5 * 2e-8 + 2e-8 + 2e-9)
    assert found.seconds == pytest.approx(scales + 1e12 * passes(100) * 2e-8 + 0.3)
    assert passes(100) == pytest.approx(5.35, abs=0.01)
    assert found.bytes == 4 * 10**6 * (1280 + 16) + 2**26
    assert str(found).splitlines()[0] == "mers, 100 of 1,000,000 points on cpu: streamed, exact, without the matrix"
    assert "4 TB" in str(found)
    assert "hours" in str(found)


def test_plan__similarities_that_are_kept_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 points in 4 GB: 48 strips of 1,024 rows and one of 848, from the diagonal on, in two bytes each."""
    monkeypatch.setattr(planning, "free_bytes", lambda _device: 10**10)
    found = plan(50_000, [512, 768], 100, device="cpu", memory=4 * 10**9)
    assert found.way == "streamed"
    assert found.kept == 50_000**2 + 48 * 1024**2 + 848**2
    assert found.bytes == found.kept + 4 * 50_000 * (1280 + 16) + 2**26
    scales = 5e4 * 8192 * (0.5 * 2e-8 + 2e-8 + 2e-9)
    computed, read = planning.kept_passes(100, 50_000)
    assert 0.5 < computed < 1
    assert found.seconds == pytest.approx(scales + 2.5e9 * computed * 2e-8 + found.kept / 2 * read * 1e-10 + 0.3)
    assert "2.55 GB of similarities kept in 16 bits" in str(found)


@pytest.mark.parametrize(
    ("method", "search"),
    [*((method, "exact") for method in COVERS), ("mers", "stochastic"), ("maxherding", "stochastic")],
)
@pytest.mark.parametrize("fusion", ["sum-then-max", "max-then-sum"])
@pytest.mark.parametrize("fewer", [0, 1])
def test_plan__tells_whether_select_keeps_similarities(method: str, fusion: str, fewer: int, search: str) -> None:
    views = {name: torch.randn(400, 6, generator=torch.Generator().manual_seed(size)) for size, name in enumerate("ab")}
    kernels = 2 if method in ("mers", "mers-pure") and fusion == "max-then-sum" else 1
    options: dict[str, Any] = {"method": method, "fusion": fusion, "search": search}
    options["memory"] = kept_bytes(400, kernels) - fewer
    with mock.patch.object(soft, "KeptSearch", wraps=KeptSearch) as begin:
        keepset.select(views, 3, **options)
    told = plan(400, [6, 6], 3, **options)
    assert bool(told.kept) == begin.called == (fewer == 0 and search == "exact" and "probcover" not in method)
    assert ("kept in 16 bits" in str(told)) == begin.called


@pytest.mark.parametrize("method", COVERS)
@pytest.mark.parametrize("dtypes", [["float64", "float64"], ["float32", "float64"], ["float64", "float16"]])
@pytest.mark.parametrize("memory", [8 * 400**2, 8 * 400**2 - 1, 16 * 400**2, 10 * 400**2, 10 * 400**2 - 1])
def test_plan__goes_by_float64_where_a_view_that_is_read_is(method: str, dtypes: list[str], memory: int) -> None:
    views = [
        torch.randn(400, size, generator=torch.Generator().manual_seed(size)).to(getattr(torch, dtype))
        for size, dtype in zip((6, 9), dtypes, strict=True)
    ]
    for fusion in ("sum-then-max", "max-then-sum"):
        with mock.patch.object(soft, "KeptSearch", wraps=KeptSearch) as begin:
            chosen = keepset.select(views, 3, method=method, fusion=fusion, memory=memory)
        told = plan(400, [6, 9], 3, method=method, fusion=fusion, memory=memory, dtype=dtypes)
        assert (told.way, bool(told.kept)) == (chosen.search, begin.called)
        assert told.dtype == (dtypes[0] if COVERS[method][1] else "float64")


def test_plan__float64_takes_twice_the_memory_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "free_bytes", lambda _device: 10**10)
    for count, way in ((20_000, "dense"), (100_000, "streamed")):
        single = plan(count, [512, 768], 100, device="cpu", memory=4 * 10**9)
        double = plan(count, [512, 768], 100, device="cpu", memory=4 * 10**9, dtype="float64")
        assert single.way == double.way == way
        assert (double.matrix, double.bytes) == (2 * single.matrix, 2 * single.bytes)
        assert (single.dtype, double.dtype) == ("float32", "float64")
        assert "float64" in str(double).splitlines()[0]
        assert "with all views in float32, half of that" in str(double)
        assert "float64" not in str(single)


def test_plan__copies_in_another_type_are_memory_too() -> None:
    """A view of float16 is brought to float32, and where another is of float64, both it and one of float32 to that."""
    plain = plan(1000, [10, 30], 5).bytes
    assert plan(1000, [10, 30], 5, dtype=["float16", "float32"]).bytes == plain + 4 * 1000 * 10
    double = plan(1000, [10, 30], 5, dtype="float64").bytes
    assert plan(1000, [10, 30], 5, dtype=["float32", "float64"]).bytes == double + 8 * 1000 * 10
    assert plan(1000, [10, 30], 5, dtype=["bfloat16", "float64"]).bytes == double + 12 * 1000 * 10


@pytest.mark.parametrize("dtype", [np.float64, np.dtype(">f8"), torch.float64, "float64", ("float32", torch.float64)])
def test_plan__a_type_may_be_numpys_or_torchs(dtype: Any) -> None:
    assert plan(400, [6, 9], 3, dtype=dtype).dtype == "float64"
    assert plan(400, [6, 9], 3, dtype=dtype).matrix == 8 * 400**2


def test_plan__dimensions_may_be_any_integer_type_and_the_method_another_name() -> None:
    expected = plan(400, 6, 3)
    assert plan(400, np.int64(6), 3, method="mers-maxherding").method == expected.method == "mers"  # type: ignore[arg-type]
    assert plan(400, np.array([6]), 3).matrix == plan(400, torch.tensor(6), 3).matrix == expected.matrix  # type: ignore[arg-type]


def test_plan__one_view_methods_look_at_the_first_view_alone() -> None:
    assert plan(10**5, [64, 999], 5, method="maxherding") == plan(10**5, 64, 5, method="maxherding")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": 0}, "count must be in 1"),
        ({"budget": 11}, "budget must be in 1..10"),
        ({"dimensions": []}, "dimensions must name at least one"),
        ({"dimensions": [3, 0]}, "dimensions must be in 1"),
        ({"method": "herding"}, "method must be a cover method"),
        ({"method": ["mers"]}, "method must be a cover method"),
        ({"dimensions": 5.0}, "dimensions must be a whole number, got 5.0"),
        ({"dimensions": "5"}, "dimensions must be a whole number"),
        ({"device": "foo"}, "device must be one that this machine has, such as cpu, got 'foo'"),
        ({"device": "cuda:99"}, "device must be one that this machine has, such as cpu, got 'cuda:99'"),
        ({"memory": "much"}, "memory"),
        ({"search": "best"}, "search"),
        ({"dtype": "int64"}, "unknown dtype 'int64'"),
        ({"dtype": ["float32", "float64"]}, "dtype must be one for all views or one for each of the 1, got 2"),
    ],
    ids=str,
)
def test_plan__wrong_arguments_are_refused_by_name(given: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"count": 10, "dimensions": [3], "budget": 2, **given}
    with pytest.raises(ValueError, match=words):
        plan(**arguments)


def test_rates__are_measured_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert 1e-11 < planning.value_seconds(16, "cpu") < 1e-5
    assert planning.value_seconds(16, "cpu") == planning.value_seconds(16, "cpu")
    assert 1e-11 < planning.neighbour_seconds(5, "cpu") < 1e-5
    assert 1e-11 < planning.value_seconds(16, "cpu", "float64") < 1e-5
    assert 1e-12 < planning.kept_seconds() < 1e-6
