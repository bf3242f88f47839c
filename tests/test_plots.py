"""Pictures of results: what is on the axes, not how the pixels fall."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepset import cli
from keepset.metrics import all_metrics, average_accuracies
from keepset.report.lines import comparable, usual_line
from keepset.report.paper import printed_result
from keepset.report.plots import draw_capacity, draw_episodes, draw_forgetting, draw_matrix, with_room
from keepset.report.stored import Record
from keepset.report.style import PLACES, check_picture, look, places, save

SETTINGS: dict[str, Any] = {
    "dataset": "cifar100",
    "learner": "er-ace",
    "order": "canonical",
    "epochs": 100,
    "episodes": 3,
    "width": 64,
    "quota": "adaptive",
}
VIEWS = {"random": "none", "mers": "supervised+simclr", "maxherding:simclr": "simclr"}


def record(selector: str = "mers", capacity: int = 100, seed: int = 0, level: float = 0.5, **other: Any) -> Record:
    """A run of three episodes, or as many as `episodes` says."""
    count = other.get("episodes", SETTINGS["episodes"])
    accuracy = [[level + 0.01 * seed - 0.02 * (t - i) for i in range(t + 1)] for t in range(count)]
    views = VIEWS.get(selector, "supervised")
    own: dict[str, Any] = {
        "selector": selector,
        "method": selector.partition(":")[0],
        "views": views,
        "capacity": capacity,
    }
    return Record(Path(f"runs/{selector}"), {**SETTINGS, **own, **other}, seed, accuracy, all_metrics(accuracy))


def setting(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def some(selectors: tuple[str, ...] = ("mers", "random"), seeds: int = 3, **other: Any) -> list[Record]:
    return [
        record(selector, capacity, seed, 0.3 + 0.05 * place + capacity / 5000, **other)
        for place, selector in enumerate(selectors)
        for capacity in (100, 300, 500)
        for seed in range(seeds)
    ]


def lines_of(axes: Any, gid: str | None = None) -> dict[str, Any]:
    return {each.get_label(): each for each in axes.get_lines() if each.get_gid() == gid}


def entries(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]


def band(axes: Any, number: int) -> tuple[Any, Any]:
    """Lower and upper edge of a band, left to right."""
    path = axes.collections[number].get_paths()[0].vertices
    places = sorted(set(path[:, 0]))
    heights = [path[path[:, 0] == place, 1] for place in places]
    return np.array([each.min() for each in heights]), np.array([each.max() for each in heights])


# ---------------------------------------------------------------- against capacity


def test_capacity__heights_are_the_means_and_bands_the_standard_errors() -> None:
    records = some()
    axes = draw_capacity(records, "AAA").axes[0]
    assert set(lines_of(axes)) == {"mers", "random"}
    for number, name in enumerate(lines_of(axes)):
        line = lines_of(axes)[name]
        assert list(line.get_xdata()) == [100, 300, 500]
        for place, height in enumerate(line.get_ydata()):
            capacity = line.get_xdata()[place]
            values = [r.metrics["AAA"] * 100 for r in records if (r["selector"], r["capacity"]) == (name, capacity)]
            error = np.std(values, ddof=1) / math.sqrt(3)
            low, high = band(axes, number)
            assert height == pytest.approx(np.mean(values))
            assert (low[place], high[place]) == pytest.approx((height - error, height + error))


def test_capacity__axis_is_logarithmic_with_the_real_capacities_below() -> None:
    axes = draw_capacity(some()).axes[0]
    assert axes.get_xscale() == "log"
    assert list(axes.get_xticks()) == [100, 300, 500]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "300", "500"]
    assert axes.get_ylabel() == "FAA (per cent)"


def test_capacity__legend_stands_as_the_lines_end() -> None:
    records = [record("random", 100, level=0.9), record("random", 500, level=0.2), record("mers", 300, level=0.4)]
    assert entries(draw_capacity(records)) == ["mers", "random"]


def test_capacity__points_that_are_missing_leave_no_mark() -> None:
    records = [each for each in some() if (each["selector"], each["capacity"]) != ("random", 300)]
    assert list(lines_of(draw_capacity(records).axes[0])["random"].get_xdata()) == [100, 500]


def test_capacity__one_seed_has_no_band_and_says_so() -> None:
    figure = draw_capacity(some(seeds=1))
    assert all(not each.get_paths() for each in figure.axes[0].collections)
    assert "one seed" in figure.get_suptitle()


def test_capacity__one_capacity_draws_bars_side_by_side() -> None:
    axes = draw_capacity([record(name, 100, seed) for name in VIEWS for seed in (0, 1)]).axes[0]
    places = [line.get_xdata()[0] for name, line in lines_of(axes).items() if name in VIEWS]
    assert len(set(places)) == 3
    assert len(axes.containers) == 3


def test_capacity__title_says_what_is_fixed() -> None:
    title = draw_capacity(some(order=35)).get_suptitle().replace("\n", " ")
    assert title == "cifar100, er-ace, 100 epochs an episode, class order 35, mean ± standard error of 3 seeds"
    assert ", 1 epoch an episode, " in draw_capacity(some(epochs=1)).get_suptitle().replace("\n", " ")
    uneven = draw_capacity([*some(), record("mers", 100, 7)]).get_suptitle()
    assert "of 3 to 4 seeds" in uneven.replace("\n", " ")


def test_capacity__views_of_one_selector_are_two_lines() -> None:
    records = [record(views=views, capacity=each) for views in ("a+b", "a+c") for each in (100, 200)]
    assert set(entries(draw_capacity(records))) == {"mers (a+b)", "mers (a+c)"}


def test_capacity__line_of_another_field() -> None:
    records = [
        record(capacity=each, **setting("options.weights", rule)) for rule in ("printed", "equal") for each in (1, 9)
    ]
    figure = draw_capacity(records, line="options.weights")
    assert set(entries(figure)) == {"printed", "equal"}
    assert figure.axes[0].get_legend().get_title().get_text() == "options.weights"
    assert "mers" in figure.get_suptitle()


def test_capacity__unknown_metric_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'FAA'"):
        draw_capacity(some(), "FFA")


@pytest.mark.parametrize("draw", [draw_capacity, draw_forgetting])
def test_legend__covers_neither_data_nor_title_and_is_not_cut(draw: Any) -> None:
    figure = draw(some(("mers", "random", "teal", *(f"my_package.selectors:number_{n}" for n in range(6)))))
    figure.canvas.draw()
    legend = figure.axes[-1].get_legend().get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert not any(legend.overlaps(text.get_window_extent()) for text in figure.texts)
    assert legend.x1 <= figure.bbox.x1
    assert legend.y0 >= figure.bbox.y0


def test_variants__are_lines_where_a_selector_was_set_in_several_ways() -> None:
    def variants(number: float) -> list[Record]:
        name = "mers" if number == 1 else f"mers bandwidth_scale={number}"
        settings: dict[str, Any] = {"options.bandwidth_scale": number, "variant": name}
        return some(("mers",), episodes=10, **settings)

    records = [*variants(0.5), *variants(1), *some(("random",), episodes=10, variant="random")]
    assert usual_line(variants(1)) == "selector"
    assert usual_line(records) == "variant"
    with pytest.raises(ValueError, match=r"differ in options.bandwidth_scale \(0.5, 1\)"):
        draw_capacity(records)
    figure = draw_capacity(records, line="variant", paper=True)
    lines = lines_of(figure.axes[0])
    assert set(lines) == {"mers", "mers bandwidth_scale=0.5", "random"}
    assert lines["mers"].get_color() == look(PLACES["mers"])["color"], "the plain one looks as everywhere"
    assert len({(line.get_color(), line.get_marker()) for line in lines.values()}) == 3
    dashed = [line for line in figure.axes[0].get_lines() if line.get_gid() == "paper"]
    assert len(dashed) == 2, "the paper has no such variant"
    assert entries(figure)[-1] == "paper"


# ---------------------------------------------------------------- the paper's


def test_paper__is_dashed_only_where_it_prints_something() -> None:
    figure = draw_capacity(some(("mers", "random", "closest"), episodes=10), paper=True)
    dashed = [line for line in figure.axes[0].get_lines() if line.get_gid() == "paper"]
    assert len(dashed) == 2, "the paper has no results of closest"
    assert {line.get_linestyle() for line in dashed} == {"--"}
    ours = lines_of(figure.axes[0])
    assert {line.get_color() for line in dashed} == {ours["mers"].get_color(), ours["random"].get_color()}
    fields = {**SETTINGS, "capacity": 500, "method": "mers", "views": "supervised+simclr"}
    printed = printed_result("FAA", fields)
    assert printed is not None
    [line] = [each for each in dashed if each.get_color() == ours["mers"].get_color()]
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True))[500] == printed.mean
    assert entries(figure)[-1] == "paper"
    assert not lines_of(draw_capacity(some()).axes[0], "paper"), "only if asked for"


def test_paper__another_protocol_is_told() -> None:
    assert entries(draw_capacity(some(epochs=10, episodes=10), paper=True))[-1] == "paper (here: epochs 10)"


def test_paper__another_data_set_has_none() -> None:
    figure = draw_capacity(some(dataset="digits"), paper=True)
    assert not lines_of(figure.axes[0], "paper")
    assert "paper" not in entries(figure)


# ---------------------------------------------------------------- forgetting, episodes, matrix


def test_forgetting__two_panels_share_one_legend() -> None:
    figure = draw_forgetting(some())
    assert [axes.get_ylabel().split(" ")[0] for axes in figure.axes] == ["stability", "forgetting"]
    assert [axes.get_legend() is None for axes in figure.axes] == [True, False]
    [value] = [each.metrics["forgetting"] for each in some(("mers",), 1) if each["capacity"] == 300]
    assert lines_of(figure.axes[1])["mers"].get_ydata()[1] == pytest.approx(100 * value)


def test_forgetting__one_episode_is_refused() -> None:
    with pytest.raises(ValueError, match="two episodes or more"):
        draw_forgetting(some(episodes=1))


def test_episodes__heights_are_the_mean_average_accuracies() -> None:
    records = [each for each in some() if each["capacity"] == 300]
    figure = draw_episodes(records)
    axes = figure.axes[0]
    mean = np.mean([average_accuracies(each.accuracy) for each in records if each["selector"] == "mers"], axis=0)
    assert lines_of(axes)["mers"].get_ydata() == pytest.approx(100 * mean)
    assert list(lines_of(axes)["mers"].get_xdata()) == [1, 2, 3]
    assert "|M| = 300" in figure.get_suptitle()
    low, high = band(axes, 0)
    assert (high - low) == pytest.approx(2 * 1 / math.sqrt(3)), "accuracies of the seeds are 0, 1, 2 per cent apart"


def test_episodes__ticks_reach_the_longest_line() -> None:
    records = [each for count in (1, 3) for each in some(("mers",), episodes=count) if each["capacity"] == 300]
    assert list(draw_episodes(records, line="episodes").axes[0].get_xticks()) == [1, 2, 3]


def test_matrix__lower_triangle_is_written_and_the_upper_empty() -> None:
    one = record(seed=4)
    figure = draw_matrix([one])
    axes = figure.axes[0]
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts == {(i, t): f"{100 * one.accuracy[t][i]:.0f}" for t in range(3) for i in range(t + 1)}
    shown = axes.images[0].get_array()
    assert np.ma.getmaskarray(shown).tolist() == [[i > t for i in range(3)] for t in range(3)]
    assert "seed 4" in figure.get_suptitle().replace("\n", " ")


def test_matrix__many_episodes_have_a_colour_bar_instead_of_numbers() -> None:
    figure = draw_matrix([record(episodes=30, level=0.7)])
    assert not figure.axes[0].texts
    assert len(figure.axes) == 2


def test_matrix__several_runs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one run, got 2; choose it by --where, or name its folder"):
        draw_matrix([record(), record(seed=1)])


# ---------------------------------------------------------------- what may vary


@pytest.mark.parametrize(("field", "one", "other"), [("learner", "er", "er-ace"), ("options.weights", "a", "b")])
def test_comparable__what_the_picture_does_not_show_is_refused_by_name(field: str, one: str, other: str) -> None:
    records = [record(**setting(field, one)), record(seed=1, **setting(field, other))]
    with pytest.raises(ValueError, match=rf"differ in {field} \({one}, {other}\).*--where {field}={one}"):
        draw_capacity(records)


def test_comparable__episodes_need_one_capacity() -> None:
    with pytest.raises(ValueError, match=r"differ in capacity \(100, 300, 500\).*--where capacity=100"):
        draw_episodes(some())


def test_comparable__selectors_are_refused_where_lines_are_something_else() -> None:
    records = [record(), record("maxherding:simclr", **setting("options.weights", "equal"))]
    with pytest.raises(ValueError, match=r"differ in selector \(maxherding:simclr, mers\), which"):
        comparable(records, "learner", ("capacity",))


@pytest.mark.parametrize("line", ["method", "views"])
def test_comparable__a_part_of_the_selector_is_a_line_where_the_other_part_is_the_same(line: str) -> None:
    plain, other, third = record("maxherding"), record("maxherding:simclr"), record("probcover")
    with pytest.raises(ValueError, match=r"differ in selector \(maxherding, maxherding:simclr, probcover\), which"):
        draw_capacity([plain, other, third], line=line)
    kept = [plain, third] if line == "method" else [plain, other]
    figure = draw_capacity(kept, line=line)
    assert set(entries(figure)) == {str(each[line]) for each in kept}
    title = figure.get_suptitle().replace("\n", " ")
    assert title == f"cifar100, er-ace, 100 epochs an episode{', maxherding' if line == 'views' else ''}, one seed"


def test_comparable__what_a_refusal_suggests_is_one_word_of_a_shell() -> None:
    with pytest.raises(ValueError, match=r"--where 'dataset=a\.npz 01c5', or"):
        draw_capacity([record(dataset="a.npz 01c5"), record(dataset="b.npz")])


def test_comparable__a_setting_that_a_whole_line_lacks_is_no_difference() -> None:
    records = [record("random"), record("mers", **setting("options.weights", "equal"))]
    assert len(comparable(records, "selector", ())) == 2
    with pytest.raises(ValueError, match=r"options.weights \(equal\)"):
        comparable([*records, record("mers", seed=1)], "selector", ())


def test_comparable__copies_count_once() -> None:
    kept = comparable([*some(), *some()], "selector", ("capacity",))
    assert len(kept) == len(some())


def test_comparable__nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no finished run"):
        draw_capacity([])


# ---------------------------------------------------------------- looks


def test_looks__no_two_places_of_a_picture_are_alike() -> None:
    looks = [(look(place)["color"], look(place)["marker"], look(place)["markerfacecolor"]) for place in range(14)]
    assert len(set(looks)) == 14
    assert len({marker for _, marker, _ in looks[:10]}) == 10


def test_places__known_selectors_keep_theirs_and_others_take_what_is_free() -> None:
    found = places([("mine", "mine"), ("mers", "mers (a+b)"), ("mers", "mers (a+c)"), ("random", "random")])
    assert found["mers", "mers (a+b)"] == PLACES["mers"]
    assert found["random", "random"] == PLACES["random"]
    assert len(set(found.values())) == 4


def test_with_room__labels_that_would_touch_are_left_out() -> None:
    assert with_room([100, 105, 500, 990, 1000]) == ["100", "", "500", "", "1000"]
    assert with_room([50]) == ["50"]


MAGIC = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.mark.parametrize("ending", MAGIC)
def test_save__the_ending_says_the_kind(ending: str, tmp_path: Path) -> None:
    save(draw_matrix([record()]), tmp_path / f"picture{ending}", dots=50)
    assert (tmp_path / f"picture{ending}").read_bytes().startswith(MAGIC[ending])
    assert len(list(tmp_path.iterdir())) == 1


def test_save__failure_leaves_the_old_picture(tmp_path: Path) -> None:
    class Broken:
        def savefig(self, file: Path, **_: Any) -> None:
            file.write_bytes(b"half")
            raise OSError("no space left")

    (tmp_path / "a.png").write_bytes(b"old")
    with pytest.raises(ValueError, match="no space left"):
        save(Broken(), tmp_path / "a.png")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.png", b"old")]


def test_check_picture__wrong_ending_and_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in .png, .pdf, .svg, got"):
        check_picture(tmp_path / "a.jpg")
    with pytest.raises(ValueError, match="does not exist; make it first"):
        check_picture(tmp_path / "no" / "a.png")


# ---------------------------------------------------------------- the command


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    for selector in ("mers", "random"):
        for capacity in (20, 50):
            for seed in (0, 1):
                stored(tmp_path / "runs" / f"{selector}{capacity}{seed}", selector, capacity, seed)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "plot", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def stored(folder: Path, selector: str, capacity: int, seed: int) -> None:
    """A finished run, as keepset run leaves it."""
    views = [] if selector == "random" else ["supervised", "simclr"]
    identity = {
        "data": {"name": "digits", "order": "canonical", "episodes": None},
        "learner": "er-ace",
        "selector": selector,
        "views": views,
        "capacity": capacity,
        "seed": seed,
        "options": {},
        "train": {"epochs": 10},
    }
    accuracy = [[0.9], [0.5 + 0.1 * seed, 0.8]]
    folder.mkdir(parents=True)
    content = {"accuracy": accuracy, "metrics": all_metrics(accuracy), "picks": [], "identity": identity}
    (folder / "result.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["runs"], "8 runs"),
        (["runs", "--metric", "aaa", "--where", "selector=mers"], "4 runs"),
        (["runs", "--kind", "episodes", "--where", "capacity=20"], "4 runs"),
        (["runs", "--kind", "forgetting"], "8 runs"),
        (["runs", "--kind", "pairs", "--against", "random", "--metric", "AAA"], "8 runs"),
        (["runs/mers200", "--kind", "matrix"], "1 run "),
    ],
)
def test_command__every_kind_is_drawn(call: Any, arguments: list[str], count: str) -> None:
    code, out, err = call(*arguments, "-o", "a.svg")
    assert (code, err) == (0, "")
    assert out.startswith(count)
    assert Path("a.svg").read_bytes().startswith(MAGIC[".svg"])


def test_command__unfinished_runs_and_copies_are_told(call: Any) -> None:
    Path("runs/begun").mkdir()
    Path("runs/begun/config.json").write_text("{}", encoding="utf-8")
    stored(Path("more/copy"), "mers", 20, 0)
    code, out, err = call("runs", "more", "--paper", "-o", "a.svg")
    assert code == 0
    assert out.startswith("8 runs")
    assert "1 unfinished (such as runs/begun)" in err
    assert "1 of the runs are there twice" in err
    assert "the paper prints nothing" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "--kind", "capcity"], "did you mean 'capacity'?"),
        (["runs", "--metric", "FFA"], "did you mean 'FAA'?"),
        (["runs", "--where", "selector=merz"], "did you mean 'mers'?"),
        (["runs", "--where", "lerner=er"], "did you mean 'learner'?"),
        (["runs", "--where", "learner"], "--where must be field=value"),
        (["runs", "--kind", "matrix"], "got 8; choose it by --where"),
        (["runs", "--kind", "matrix", "--metric", "AAA"], "--metric is for --kind capacity and pairs"),
        (["runs", "--kind", "pairs"], "name it, as in --against mers"),
        (["runs", "--kind", "pairs", "--against", "mrs"], "did you mean 'mers'?"),
        (["runs", "--against", "mers"], "--against is for --kind pairs, got --kind capacity"),
        (["runs", "--kind", "pairs", "--against", "mers", "--line", "learner"], "--line is for --kind capacity"),
        (["runs", "--kind", "episodes", "--paper"], "--paper is for --kind capacity and forgetting"),
        (["runs", "--kind", "episodes"], "--where capacity=20"),
        (["nowhere"], "there is no folder or file nowhere"),
    ],
)
def test_command__bad_input_ends_with_a_remedy(call: Any, arguments: list[str], message: str) -> None:
    code, _, err = call(*arguments, "-o", "a.png")
    assert code == 2
    assert message in err
    assert not Path("a.png").exists()


def test_command__an_empty_folder_is_told(call: Any) -> None:
    Path("empty").mkdir()
    code, _, err = call("empty", "-o", "a.png")
    assert code == 2
    assert "no finished runs in empty" in err
