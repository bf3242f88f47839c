"""The paper's experiments: every file expands, costs what its comment says, and has what the paper's tables show."""

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from keepset.experiment.config import make_config
from keepset.experiment.grid import Planned, read_grids
from keepset.experiment.identity import run_hash
from keepset.packed import members
from keepset.selection import SELECTORS
from keepset.views import ENCODERS
from keepset.views.cache import Recipe

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "experiments" / "claims_digits.toml"
# on a CPU: the preset and the number of seeds
ON_CPU: dict[Path, tuple[str | None, int]] = {
    DIGITS: ("fast", 30),
    ROOT / "experiments" / "past_mers_digits.toml": ("fast", 30),
    ROOT / "experiments" / "ablations_digits.toml": ("fast", 30),
    ROOT / "experiments" / "full_digits.toml": ("paper", 20),
    ROOT / "experiments" / "simclr_digits.toml": ("fast", 30),
    ROOT / "experiments" / "small_cifar100.toml": (None, 8),
    ROOT / "experiments" / "past_mers_small_cifar100.toml": (None, 8),
    ROOT / "experiments" / "learner_small_cifar100.toml": (None, 8),
    ROOT / "experiments" / "beyond_small_cifar100.toml": (None, 5),
}
FILES = sorted({*(ROOT / "experiments").glob("*.toml")} - {*ON_CPU})
COST = re.compile(r"^# ([\d,]+) runs of ([\d,]+) steps: ([\d,]+) steps in all; with --preset fast ([\d,]+)\.$", re.M)
HOURS = re.compile(r"^# On one H200, eight side by side: ([\d.]+) GPU hours; with --preset fast ([\d.]+)\.$", re.M)
# milliseconds a step of a run, by learner and by the side of an image, as docs/performance.md tells
RATES = {("er", 32): 0.575, ("er-ace", 32): 0.567, ("er-ace-star", 32): 1.279, ("er", 64): 1.364, ("er-ace", 64): 1.364}

CAPACITIES = [100, 300, 500, 1000, 2000]
LARGE = [*CAPACITIES, 4000, 5000]
TINY = [200, 400, 600, 1000, 2000, 4000, 6000]
MAIN = ["random", "herding", "teal", "probcover", "maxherding", "mers"]
ORDERS = ["random", "probcover", "probcover:simclr", "mers-probcover", "maxherding", "maxherding:simclr", "mers"]
# (data, learner, order) -> the capacities and selectors of the paper's tables
TABLES: dict[tuple[str, str, Any], tuple[list[int], list[str]]] = {
    ("cifar100", "er-ace-star", "canonical"): (CAPACITIES, MAIN),
    ("cifar100", "er-ace", "canonical"): (CAPACITIES, MAIN),
    ("cifar100", "er", "canonical"): (CAPACITIES[1:], [*MAIN, "rainbow"]),
    ("cifar100", "er-ace", 42): (LARGE, ORDERS),
    ("cifar100", "er", 42): (LARGE, ORDERS),
    ("tinyimagenet", "er-ace", 42): (TINY, ORDERS),
    ("cifar100", "er-ace", 35): (LARGE, ORDERS),
    ("cifar100", "er", 35): (CAPACITIES, ORDERS),
    ("tinyimagenet", "er-ace", 35): (TINY, ORDERS),
    ("tinyimagenet", "er", 35): (TINY, ORDERS),
}


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """Grids of hundreds of runs: the reader of settings is made once, and DINOv2 needs no weights to be counted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pydantic, "TypeAdapter", functools.cache(pydantic.TypeAdapter))
        unweighed = dataclasses.replace(ENCODERS["dinov2"], recipe=lambda *_: Recipe("dinov2", {}, 1))
        patched.setitem(ENCODERS, "dinov2", unweighed)
        yield


@functools.cache
def runs_of(file: Path) -> tuple[Planned, ...]:
    return read_grids([file]).runs


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file__begins_with_what_it_costs(file: Path) -> None:
    text, runs = file.read_text(encoding="utf-8"), runs_of(file)
    assert text.startswith("# ")
    found = COST.search(text)
    assert found, "a comment with runs and steps"
    told = [int(number.replace(",", "")) for number in found.groups()]
    total = sum(run.steps for run in runs)
    assert {run.steps for run in runs} == {told[1]}
    assert told == [len(runs), told[1], total, total // 10]
    sides = {"cifar100": 32, "tinyimagenet": 64}
    hours = sum(run.steps * RATES[run.config.learner, sides[run.config.data.name]] for run in runs) / 3.6e6
    found = HOURS.search(text)
    assert found, "a comment with GPU hours"
    assert [float(number) for number in found.groups()] == pytest.approx([hours, hours / 10], abs=0.0501)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file__has_a_fast_twin_and_its_seeds(file: Path) -> None:
    """Five, or eight where small differences are looked for, or three to have it sooner."""
    runs, seeds = runs_of(file), SEEDS.get(file.stem, 5)
    assert {run.config.train.epochs for run in runs} == {100}
    one = read_grids([file], "fast", {"seed": 0}).runs
    assert {run.config.train.epochs for run in one} == {10}
    assert len(one) * seeds == len(runs)
    assert {run.config.seed for run in runs} == set(range(seeds))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file__seeds_change_fastest(file: Path) -> None:
    """Runs of one seed would wait for each other in the first episode."""
    assert [run.config.seed for run in runs_of(file)[:3]] == [0, 1, 2]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: "-".join(map(str, table)))
def test_tables__every_cell_has_its_runs(table: tuple[str, str, Any]) -> None:
    data, learner, order = table
    capacities, selectors = TABLES[table]
    name = f"{learner.replace('-', '_')}_{data}" + ("" if order == "canonical" else f"_order_{order}")
    found = defaultdict(set)
    for run in runs_of(ROOT / "experiments" / f"{name}.toml"):
        config = run.config
        assert (config.data.name, config.learner, config.data.order) == table
        assert not config.options
        found[config.selector].add(config.capacity)
    assert found == {selector: set(capacities) for selector in selectors}


@pytest.mark.parametrize(
    ("stem", "option", "values"),
    [
        ("bandwidth", "bandwidth", {None, 1.0, "knn", "episode"}),
        ("weights", "weights", {None, "density", "inverse", "equal"}),
        ("metric", "metric", {None, "euclidean", "literal"}),
        ("fusion", "fusion", {None, "max-then-sum"}),
        ("uncovered", "uncovered", {None, "shared"}),
    ],
)
def test_ablations__default_and_the_others(stem: str, option: str, values: set[Any]) -> None:
    found = defaultdict(set)
    for run in runs_of(ROOT / "experiments" / f"{stem}_cifar100.toml"):
        assert set(run.config.options) <= {option}
        found[run.config.selector, run.config.capacity].add(run.config.options.get(option))
    assert {capacity for _, capacity in found} == set(CAPACITIES)
    assert all(each == values for each in found.values())


def test_ablations__in_short_one_thing_at_a_time_and_no_run_of_the_claims() -> None:
    usual = make_config(flags={"data": {"name": "cifar100"}, "capacity": 500})
    claims = {run.name for run in runs_of(ROOT / "experiments" / "claims_cifar100.toml")}
    shared = []
    for run in runs_of(ROOT / "experiments" / "ablations_cifar100.toml"):
        config = run.config
        assert config.capacity == 500
        changed = [config.learner != "er-ace", config.data.order != "canonical", config.views != usual.views]
        changed += [config.simclr != usual.simclr, config.selector == "probcover:simclr"]
        assert len(config.options) + sum(changed) == 1, config
        shared += [(config.learner, config.selector)] if run.name in claims else []
    assert set(shared) == {("er", "random")}, "to compare Rainbow Memory with"


@pytest.mark.parametrize("file", ON_CPU, ids=lambda file: file.stem)
def test_file_for_a_cpu__begins_with_what_it_costs_and_has_its_seeds(file: Path) -> None:
    preset, seeds = ON_CPU[file]
    runs = read_grids([file], preset).runs
    told = f"# {len(runs):,} runs: {sum(run.steps for run in runs):,} steps in all"
    assert told in file.read_text(encoding="utf-8")
    assert [run.config.seed for run in runs] == [*range(seeds)] * (len(runs) // seeds)
    assert {run.config.data.name for run in runs} == {file.stem.rpartition("_")[2]}


def test_digits__every_selector_and_one_thing_at_a_time() -> None:
    usual, selectors = make_config(flags={"data": {"name": "digits"}}), defaultdict(set)
    for run in read_grids([DIGITS], "fast", {"seed": 0}).runs:
        config = run.config
        changed = [config.learner != "er-ace", config.data.order != "canonical", config.capacity != 20]
        changed += [config.views != usual.views] if config.selector == "mers" else []
        assert len(config.options) + sum(changed) <= 1, config
        selectors[config.capacity].add(config.selector)
    every = {*SELECTORS, "maxherding:simclr"} - {"closest", "rainbow"}
    assert selectors[10] == selectors[50] == every
    assert selectors[20] == every | {"probcover:simclr"}


def test_embeddings__each_alone_and_beside_the_supervised_one() -> None:
    files = [ROOT / "experiments" / f"embeddings{middle}_cifar100.toml" for middle in ("", "_dinov2")]
    found = {run.config.used_views() for file in files for run in runs_of(file)}
    own = ("simclr", "vicreg", "dinov2")
    assert found == {("supervised",), *((name,) for name in own), *(("supervised", name) for name in own)}


SEEDS = {
    "past_mers_cifar100": 8,
    "past_mers_cifar100_order_42": 6,
    "past_mers_narrow_cifar100": 6,
    "past_mers_learners_cifar100": 3,
    "claims_cifar100": 3,
    "ablations_cifar100": 3,
    "ablations_cifar100_order_42": 3,
    "full_cifar100": 3,
    "learner_cifar100": 3,
    "full_learner_cifar100": 3,
}
PURE = {"point_weights": "purity"}
NARROW = {"bandwidth_scale": 0.5}
BEFORE = ("supervised", "simclr", "previous")


@pytest.mark.parametrize(
    ("stem", "arms"),
    [
        (
            "past_mers_cifar100",
            [
                (BEFORE[:2], {}),
                (BEFORE[:2], PURE | NARROW),
                (BEFORE[:2], {"point_weights": "density"}),
                (BEFORE[:2], {"point_weights": "density", "point_power": 4.0}),
                (BEFORE, PURE | NARROW | {"purity_view": "simclr"}),
                (BEFORE, {}),
                (BEFORE[:2], NARROW),
                (BEFORE[:2], PURE),
                (BEFORE, PURE | {"purity_view": "simclr"}),
            ],
        ),
        (
            "past_mers_cifar100_order_42",
            [(BEFORE[:2], {}), (BEFORE, PURE | NARROW | {"purity_view": "simclr"}), (BEFORE[:2], PURE | NARROW)],
        ),
    ],
)
def test_past_mers__the_arms_at_two_capacities(stem: str, arms: list[tuple[tuple[str, ...], dict[str, Any]]]) -> None:
    found, others = defaultdict(list), set()
    for run in runs_of(ROOT / "experiments" / f"{stem}.toml"):
        config = run.config
        assert (config.learner, config.data.order) == ("er-ace", 42 if stem.endswith("42") else "canonical")
        if config.selector != "mers":
            others.add((config.selector, config.capacity))
        elif config.seed == 0:
            found[config.capacity].append((config.views, dict(config.options)))
    assert found == {100: arms, 500: arms}
    names = ["maxherding"] if stem.endswith("42") else ["maxherding", "teal"]
    winner = set() if stem.endswith("42") else {("mers-pure", 2000)}
    assert others == {(name, capacity) for name in names for capacity in (100, 500)} | winner


def test_results__are_runs_of_these_files() -> None:
    """Else the commands of REPRODUCED.md would run them again."""
    known = set()
    for stem in SEEDS:
        preset = "paper" if stem.startswith("full") else "fast"
        for run in read_grids([ROOT / "experiments" / f"{stem}.toml"], preset, {"device": "cuda"}).runs:
            stacked = dataclasses.replace(run.config.train, stacked=True)
            known |= {run.name, run_hash(dataclasses.replace(run.config, train=stacked))}
    stored = {path.parent.name for path in (ROOT / "experiments" / "results").glob("*/result.json")}
    assert stored
    assert stored <= known


@pytest.mark.parametrize(
    ("packed", "stems", "seeds"),
    [
        ("simclr_digits", ["simclr_digits"], 30),
        ("digits", ["claims_digits", "past_mers_digits", "ablations_digits", "full_digits"], 30),
        ("small_cifar100", ["small_cifar100", "past_mers_small_cifar100"], 5),
        ("learner_small_cifar100", ["learner_small_cifar100"], 5),
        ("beyond_small_cifar100", ["beyond_small_cifar100"], 5),
    ],
)
def test_results_of_a_cpu__are_all_runs_of_these_files(packed: str, stems: list[str], seeds: int) -> None:
    """Of so many seeds, and none is missing."""
    known = set()
    for stem in stems:
        file = ROOT / "experiments" / f"{stem}.toml"
        planned = read_grids([file], ON_CPU[file][0], {"device": "cpu"}).runs
        known |= {run.name for run in planned if run.config.seed < seeds}
    archive = ROOT / "experiments" / "results_cpu" / f"{packed}.tar.xz"
    assert {name.partition("/")[0] for name, _ in members(archive)} == known


def test_docs__name_every_file_and_no_other() -> None:
    text = (ROOT / "docs" / "grids.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(\w+_(?:cifar100|tinyimagenet|digits)\w*)`", text))
    assert told == {file.stem for file in (*FILES, *ON_CPU)}


def test_docs__the_grid_shown_expands(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "grids.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "shown.toml").write_text(shown, encoding="utf-8")
    assert len(read_grids([tmp_path / "shown.toml"]).runs) == 5 * 4 * 3 * 5
