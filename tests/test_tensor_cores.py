"""The tensor cores' way of a streamed cover: as good as float32, in every mode; in Triton's interpreter, on a CPU."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import keepset
from keepset.selection import scales, tensor_core_scales, tensor_cores
from keepset.selection.geometry import Cloud, cloud, distances
from keepset.selection.kernels import Similarity
from keepset.selection.options import KERNELS, METRICS
from keepset.selection.sampled import exact_copies
from keepset.selection.streaming import Kernel
from keepset.selection.tensor_core_scales import Pairs, middle_distances, near_distances
from keepset.selection.tensor_cores import SCALE, STEP, Split, split

GENERATOR = torch.Generator().manual_seed(0)
COUNT = 200
NEVER_DENSE = 1


def interpreter() -> Any:
    """Triton's interpreter, or None where there is no Triton, or it was loaded to compile."""
    if "triton" not in sys.modules:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        importlib.import_module("triton")
        knobs = importlib.import_module("triton.knobs")
        return importlib.import_module("triton.runtime.interpreter") if knobs.runtime.interpret else None
    except ImportError:
        return None


needs_interpreter = pytest.mark.skipif(
    torch.cuda.is_available() or interpreter() is None, reason="needs Triton's interpreter"
)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPUs take the way of the tensor cores. Arrays of one number are no number any more in numpy 2.4."""
    triton, patch = interpreter(), interpreter()._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(triton, "_patch_lang_tensor", patched)
    monkeypatch.setattr(tensor_cores, "INTERPRETED", True)


def make_views(count: int = COUNT, sizes: tuple[int, ...] = (70, 130), copies: bool = True) -> list[Tensor]:
    """Clumps, and in each view but the last three points in one place."""
    views = []
    for size in sizes:
        centres = torch.randn(6, size, generator=GENERATOR)
        members = torch.randint(6, (count,), generator=GENERATOR)
        views.append(centres[members] + 0.7 * torch.randn(count, size, generator=GENERATOR))
    for view in views[:-1] if copies else ():
        view[[count // 2, count - 1]] = view[3].clone()
    return views


def exact_clouds(views: list[Tensor]) -> list[Cloud]:
    return [exact_copies(cloud(view)) for view in views]


# ---------------------------------------------------------------- two numbers for one


@pytest.mark.parametrize("size", [5, 64, 200])
@pytest.mark.parametrize("spread", [1.0, 0.01])
def test_split__three_products_have_the_digits_of_float32(size: int, spread: float) -> None:
    view = spread * torch.randn(150, size, generator=GENERATOR) + torch.randn(size, generator=GENERATOR)
    centred = cloud(view).centred
    parts = split([view]).halves.double().unflatten(1, (-1, 2, STEP)) / SCALE
    large, small = (parts[:, :, half].flatten(1)[:, :size] for half in (0, 1))
    found = large @ large.T + large @ small.T + small @ large.T
    sizes = torch.linalg.vector_norm(centred.double(), dim=1)
    bound = 2**-21 * sizes[:, None] * sizes
    assert bool(((large + small - centred).abs() <= 2**-22 * centred.abs() + 2**-36).all())
    assert bool(((found - centred.double() @ centred.double().T).abs() <= bound).all())


def test_split__views_lie_side_by_side_and_end_in_zeros() -> None:
    views = make_views(20, (70, 3, 64))
    found = split(views)
    assert found.steps.tolist() == [0, 2, 3, 4]
    assert found.halves.shape == (20, 2 * 4 * STEP)
    assert not found.halves.unflatten(1, (-1, 2, STEP))[:, 1, :, 6:].any()
    assert torch.equal(found.half_norms, torch.stack([cloud(view).half_norms for view in views]))


def test_usable__only_float32_on_a_gpu() -> None:
    assert not tensor_cores.usable(make_views(5))
    assert not tensor_cores.usable([view.double() for view in make_views(5)])


# ---------------------------------------------------------------- every mode


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
def test_distances__of_gathered_points() -> None:
    views = make_views()
    points = split(views)
    rows, columns = torch.randperm(COUNT, generator=GENERATOR)[:131], torch.tensor([199, 3, 3, 100, 0])
    for m, everyone in enumerate(exact_clouds(views)):
        expected = distances(everyone.part(rows), everyone.part(columns))
        found = points.distances(m, rows, columns)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(found == 0, expected == 0)
        whole = points.distances(m, rows)
        assert torch.equal(whole[:, columns], found)


CASES = [
    *itertools.product(KERNELS, METRICS, [(70, 130)]),
    ("rbf", "cosine", (64,)),
    ("laplace", "literal", (30, 90, 65)),
]


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("name", "metric", "sizes"), CASES)
def test_kernel__every_mode_as_block_by_block(
    name: str, metric: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_cores, "PARTIAL", COUNT)  # one tile of columns at a time
    views = make_views(sizes=sizes)
    similar = [Similarity(name, metric, 0.7 + 0.1 * m, (m + 1) / 6) for m in range(len(sizes))]
    worth = torch.rand(COUNT, generator=GENERATOR) if name != "laplace" else None
    found = split(views).kernel(range(len(sizes)), similar, worth)
    expected = Kernel(exact_clouds(views), similar, worth)
    torch.testing.assert_close(found.row_sums(), expected.row_sums(), rtol=1e-6, atol=0)
    rows, points = (torch.randperm(COUNT, generator=GENERATOR)[:size] for size in (140, 157))
    for some in (rows, rows[:1]):
        torch.testing.assert_close(found.highest(some), expected.highest(some), rtol=0, atol=1e-6)
    low = 0.3 * torch.rand(COUNT, generator=GENERATOR)
    for high in (low + 0.2 * torch.rand(COUNT, generator=GENERATOR), torch.full_like(low, torch.inf)):
        for some_or_all in (rows, None):
            given = (some_or_all, points, low, high)
            torch.testing.assert_close(found.excess(*given), expected.excess(*given), rtol=1e-5, atol=1e-5)
    assert not found.excess(rows, points[:0], low, low).any()


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
def test_kernel__of_one_view_of_two_and_without_a_scale() -> None:
    views = make_views()
    similar = [Similarity("rbf", "cosine", 0.0), Similarity("rbf", "cosine", 0.5, 0.25)]
    for m in range(2):
        found = split(views).kernel([m], similar[m : m + 1], None).row_sums()
        expected = Kernel(exact_clouds(views)[m : m + 1], similar[m : m + 1], None).row_sums()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


# ---------------------------------------------------------------- scales


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("count", "paired", "bins"), [(COUNT, 40, 2**20), (COUNT, 40, 2**9), (COUNT, 400, 2**12), (5, 400, 2**20)]
)
def test_middle_distances__to_the_bit(count: int, paired: int, bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_core_scales, "PAIRED", paired)
    monkeypatch.setattr(tensor_core_scales, "BINS", bins)
    points = split(make_views(count))
    for m in range(2):
        upper = torch.triu_indices(count, count, 1)
        ordered = points.distances(m, points.everyone)[upper[0], upper[1]].sort().values
        middle = float(ordered[(len(ordered) - 1) // 2]), float(ordered[len(ordered) // 2])
        assert middle_distances(points, m) == middle


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
def test_middle_distances__of_points_in_two_places() -> None:
    views = [torch.eye(2)[torch.arange(150) % 2]]  # D is 0 or 1, as often
    assert middle_distances(split(views), 0) == (1, 1)
    assert middle_distances(split([views[0][:4]]), 0) == (1, 1)
    assert middle_distances(split([torch.eye(2)[[0, 0, 1]]]), 0) == (1, 1)
    assert middle_distances(split([torch.eye(2)[[0] * 140 + [1]]]), 0) == (0, 0)


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
def test_pairs__outside_of_a_bracket_are_found_too() -> None:
    points = split(make_views())
    pairs = Pairs(points, 1, points.everyone)
    upper = torch.triu_indices(COUNT, COUNT, 1)
    ordered = points.distances(1, points.everyone)[upper[0], upper[1]].sort().values
    bits = ordered.view(torch.int32).tolist()
    narrow = pairs.counted(bits[10_000], bits[10_100])
    assert narrow.below <= 10_000
    for rank in (5, 10_050, len(pairs) - 1):
        assert pairs.ranked(rank, narrow)[0] == bits[rank]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample tells how far neighbours reach, with few points too."""
    monkeypatch.setattr(tensor_core_scales, "COMPARED", 128)
    monkeypatch.setattr(tensor_core_scales, "WRITTEN", 128 * 200)


def nearest_by_rank(blocks: Iterator[Tensor], count: int) -> Tensor:
    """(n, count), the rows in an order that both ways share."""
    rows = torch.cat([block.topk(count, largest=False).values for block in blocks])
    return rows[rows.double().sum(1).argsort()]


@needs_interpreter
@pytest.mark.usefixtures("interpreted", "compared")
@pytest.mark.parametrize("deviations", [5, 0])
def test_near_distances__hold_the_nearest_of_every_point(deviations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the sample tells too little, and many come with their distances to all."""
    monkeypatch.setattr(tensor_core_scales, "DEVIATIONS", deviations)
    points = split(make_views())
    blocks = list(near_distances(points, 0, 9))
    assert sum(map(len, blocks)) == COUNT
    assert blocks[0].shape[1] < COUNT
    assert (blocks[-1].shape[1] == COUNT) == (deviations == 0)
    expected = nearest_by_rank(iter([points.distances(0, points.everyone)]), 10)
    torch.testing.assert_close(nearest_by_rank(iter(blocks), 10), expected, rtol=0, atol=0)


def test_nearness__as_neighbours_in_order() -> None:
    points = exact_copies(cloud(make_views()[0]))
    blocks = list(distances(points, points).split(64))
    expected = scales.neighbours(blocks, 7, scales.euclidean)
    found = scales.nearness(blocks, 7, scales.euclidean)
    torch.testing.assert_close(found.mean, expected.mean)
    assert torch.equal(found.nearest, expected.nearest)
    assert scales.weight("printed", found) == pytest.approx(scales.weight("printed", expected))


# ---------------------------------------------------------------- whole selections


OPTIONS: list[dict[str, Any]] = [
    {},
    {"method": "maxherding"},
    {"weights": "inverse"},
    {"bandwidth": "knn"},
    {"bandwidth": 0.5, "weights": [1, 2]},
    {"metric": "euclidean"},
    {"metric": "literal", "kernel": "laplace"},
    {"kernel": "tophat"},
    {"fusion": "max-then-sum"},
    {"start": [4, 90]},
    {"point_weights": torch.linspace(0, 1, COUNT)},
    {"method": "mers-probcover"},
    {"method": "mers-probcover", "uncovered": "shared", "start": [4]},
]


@needs_interpreter
@pytest.mark.usefixtures("interpreted", "compared")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_select__the_same_picks_as_with_the_matrix(options: dict[str, Any]) -> None:
    views = make_views(sizes=(20, 30))
    dense = keepset.select(views, 8, memory=2**60, **options)
    found = keepset.select(views, 8, memory=NEVER_DENSE, **options)
    assert found.search == "streamed"
    assert found.weights == pytest.approx(dense.weights, rel=1e-5)
    assert found.scales == pytest.approx(dense.scales, rel=1e-5)
    assert found.objective == pytest.approx(dense.objective, rel=1e-6)
    assert list(found) == list(dense) or options.get("kernel") == "tophat"  # which has many ties


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
def test_select__stochastic_from_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    views = make_views(sizes=(20, 30))
    found = keepset.select(views, 5, search="stochastic", generator=1)
    monkeypatch.setattr(tensor_cores, "INTERPRETED", False)
    assert list(found) == list(keepset.select(views, 5, search="stochastic", generator=1))


@needs_interpreter
@pytest.mark.usefixtures("interpreted")
def test_split__is_asked_for_float32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(views: list[Tensor]) -> Split:
        raise AssertionError

    monkeypatch.setattr(tensor_cores, "split", refused)
    keepset.select([view.double() for view in make_views(50)], 3, memory=NEVER_DENSE)
    with pytest.raises(AssertionError):
        keepset.select(make_views(50), 3, memory=NEVER_DENSE)
