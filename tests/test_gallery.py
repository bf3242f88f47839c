"""The gallery: which images are drawn in which order, what is marked, and where the kept points lie."""

import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from keepset import cli
from keepset.commands.gallery import told_apart
from keepset.data import DataSettings, content, load
from keepset.report.gallery import Kept, alone, draw_gallery
from keepset.report.maps import features_of_classes, flat_map

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randint(256, (40, 1, 5, 5), generator=GENERATOR, dtype=torch.uint8)
ROWS = {0: torch.arange(0, 40, 2), 1: torch.arange(1, 40, 2)}
FIRST, SECOND = torch.randn(40, 6, generator=GENERATOR), torch.randn(40, 4, generator=GENERATOR)


def one_run(name: str = "a", views: dict[str, Tensor] | None = None, **picks: list[int]) -> Kept:
    """A run with picks c0 and c1 of the two classes, and whole views (40, d)."""
    seen = {label: {each: view[rows] for each, view in (views or {}).items()} for label, rows in ROWS.items()}
    chosen = {0: picks.get("c0", [4, 0, 8]), 1: picks.get("c1", [3, 1])}
    return Kept(name, chosen, ROWS, {label: each for label, each in seen.items() if each}, name)


def two_runs() -> list[Kept]:
    return [
        one_run("a", {"first": FIRST}, c0=[4, 0, 8], c1=[3, 1]),
        one_run("b", {"first": FIRST * 2, "second": SECOND}, c0=[8, 6, 4], c1=[1, 3]),
    ]


def axes_of(figure: Any, start: str) -> list[Any]:
    return [axes for axes in figure.axes if str(axes.get_gid()).startswith(start)]


def texts_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


# ---------------------------------------------------------------- images


def test_images__an_axes_for_every_class_and_run_in_the_order_picked() -> None:
    runs = two_runs()
    figure = draw_gallery(runs, [0, 1], images=IMAGES)
    found = axes_of(figure, "images")
    assert [axes.get_gid() for axes in found] == ["images 0", "images 0", "images 1", "images 1"]
    picked = [run.picks[label] for label in (0, 1) for run in runs]
    for axes, rows in zip(found, picked, strict=True):
        drawn = [np.asarray(image.get_array()) for image in axes.images]
        assert len(drawn) == len(rows)
        for image, row in zip(drawn, rows, strict=True):
            assert (image == IMAGES[row, 0].numpy()).all()
        lefts = [image.get_extent()[0] for image in axes.images]
        assert lefts == sorted(set(lefts)), "one beside the other"
        assert texts_of(axes) == [str(number + 1) for number in range(len(rows))]


def test_images__those_that_one_run_alone_kept_are_framed() -> None:
    figure = draw_gallery(two_runs(), [0, 1], images=IMAGES)
    marks = [[patch.get_gid() for patch in axes.patches] for axes in axes_of(figure, "images")]
    assert marks == [["shared", "alone", "shared"], ["shared", "alone", "shared"], ["shared"] * 2, ["shared"] * 2]
    [thick] = {patch.get_linewidth() for axes in figure.axes for patch in axes.patches if patch.get_gid() == "alone"}
    assert thick > 1.5


def test_alone__counts_picks_that_are_not_shown() -> None:
    runs = [one_run(c0=[4, 0]), one_run("b", c0=[2, 4])]
    figure = draw_gallery(runs, [0], images=IMAGES, most=1)
    marks = [patch.get_gid() for axes in axes_of(figure, "images") for patch in axes.patches]
    assert marks == ["shared", "alone"], "row 4 is kept by both, though b shows its first alone"
    assert alone(runs[:1], 0, 0) == set(), "nobody is alone among one"


def test_images__in_colour_stay_as_they_are() -> None:
    colours = torch.randint(256, (40, 3, 4, 6), generator=GENERATOR, dtype=torch.uint8)
    [axes] = axes_of(draw_gallery([one_run()], [0], images=colours), "images")
    assert (np.asarray(axes.images[0].get_array()) == colours[4].permute(1, 2, 0).numpy()).all()
    left, right, bottom, top = axes.images[0].get_extent()
    assert (bottom - top) / (right - left) == pytest.approx(4 / 6), "in their own proportions"


def test_images__lines_break_and_the_rest_is_told() -> None:
    run = one_run(c0=list(range(0, 40, 2)))
    figure = draw_gallery([run, one_run("b")], [0], images=IMAGES, most=15)
    axes = axes_of(figure, "images")[0]
    assert len(axes.images) == 15
    assert len({image.get_extent()[3] for image in axes.images}) == 2
    assert any("the first 15 of 20 kept" in text.get_text() for text in figure.texts)


def test_images__missing_ones_are_told_by_their_rows() -> None:
    figure = draw_gallery([one_run()], [0])
    [axes] = axes_of(figure, "images")
    assert not axes.images
    assert texts_of(axes)[::2] == ["4", "0", "8"]
    assert "inside the rows" in figure.texts[-1].get_text()


def test_names__of_runs_and_classes_are_written() -> None:
    figure = draw_gallery(two_runs(), [1], images=IMAGES, names=["cat", "dog"], title="fixed")
    words = [text.get_text() for text in figure.texts]
    assert words[:4] == ["fixed", "a", "b", "class 1: dog"]


def test_names__long_ones_are_whole_in_a_few_lines_and_touch_nothing() -> None:
    names = [f"mers-probcover on supervised + pixels, er-ace, |M| = {capacity}" for capacity in range(100, 700, 100)]
    figure = draw_gallery([one_run(name) for name in names], [0], images=IMAGES, title="fixed " * 60)
    figure.canvas.draw()
    title, *heads = figure.texts[:7]
    assert [head.get_text().replace("\n", " ").replace("\u00a0", " ") for head in heads] == names
    boxes = [head.get_window_extent() for head in heads]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
    assert title.get_window_extent().y0 > boxes[0].y1
    assert boxes[0].y0 > figure.texts[7].get_window_extent().y1, "the name of the class"
    assert max(box.x1 for box in [*boxes, title.get_window_extent()]) <= figure.bbox.x1
    longest = draw_gallery([one_run("word " * 100 + "end")] * 6, [0]).texts[1].get_text()
    assert longest.count("\n") == 3
    assert longest.endswith("end")


def test_gallery__too_many_runs_and_no_class_are_refused() -> None:
    with pytest.raises(ValueError, match=r"runs must be 1 to 6.*got 7; name fewer"):
        draw_gallery([one_run()] * 7, [0])
    with pytest.raises(ValueError, match="at least one class"):
        draw_gallery([one_run()], [])


# ---------------------------------------------------------------- maps


def test_flat_map__is_the_plane_of_most_variance_of_unit_vectors() -> None:
    points, share = flat_map(FIRST)
    unit = torch.nn.functional.normalize(FIRST.double(), dim=1).numpy()
    values, vectors = np.linalg.eigh(np.cov(unit.T))
    expected = (unit - unit.mean(0)) @ vectors[:, ::-1][:, :2]
    assert np.abs(points) == pytest.approx(np.abs(expected))
    assert share == pytest.approx(values[-2:].sum() / values.sum())
    assert flat_map(FIRST * 8)[0] == pytest.approx(points), "the length of a vector says nothing"


@pytest.mark.parametrize("view", [torch.ones(3, 4), torch.ones(1, 4), torch.zeros(2, 1)])
def test_flat_map__points_without_spread_lie_together(view: Tensor) -> None:
    points, share = flat_map(view)
    assert points == pytest.approx(np.zeros((len(view), 2)), abs=1e-9)
    assert share == pytest.approx(1.0)


def test_maps__all_points_are_there_and_picks_lie_on_theirs() -> None:
    runs = two_runs()
    figure = draw_gallery(runs, [0], images=IMAGES)
    found = axes_of(figure, "map")
    assert [axes.get_gid() for axes in found] == ["map 0 first", "map 0 second"] * 2
    assert [axes.get_title(loc="left").partition(" (")[0] for axes in found] == ["first", "second*", "first", "second"]
    for number, axes in enumerate(found):
        run, view = runs[number // 2], (FIRST, SECOND)[number % 2]
        points, _ = flat_map(view[ROWS[0]])
        assert np.asarray(axes.collections[0].get_offsets()) == pytest.approx(points)
        marks = [mark.get_xydata()[0] for mark in axes.get_lines()]
        assert np.array(marks) == pytest.approx(points[[row // 2 for row in run.picks[0]]])
        assert texts_of(axes) == ["1", "2", "3"]
        assert [mark.get_gid() for mark in axes.get_lines()] == ["shared", "alone", "shared"]


def test_maps__a_run_shows_its_own_features_where_it_has_them() -> None:
    runs = [one_run("a", {"first": FIRST}), one_run("b", {"first": FIRST.flip(1).abs()})]
    left, right = axes_of(draw_gallery(runs, [0], images=IMAGES), "map")
    assert np.asarray(left.collections[0].get_offsets()) == pytest.approx(flat_map(FIRST[ROWS[0]])[0])
    assert np.asarray(right.collections[0].get_offsets()) == pytest.approx(flat_map(FIRST.flip(1).abs()[ROWS[0]])[0])


def test_features__views_in_the_order_of_the_run_and_rows_of_the_class(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    labels = torch.arange(40) % 2
    save_file({"view.a": FIRST, "view.b": SECOND, "labels": labels}, tmp_path / "views" / "1.safetensors")
    found = features_of_classes(tmp_path, 1, {1: ROWS[1]}, ["b", "a"])
    assert list(found[1]) == ["b", "a"]
    assert torch.equal(found[1]["a"], FIRST[ROWS[1]])
    with pytest.raises(ValueError, match="20 points of class 1, the data have 3 images"):
        features_of_classes(tmp_path, 1, {1: ROWS[1][:3]}, ["b", "a"])


# ---------------------------------------------------------------- the command


def stored(folder: Path, selector: str, views: tuple[str, ...], data: dict[str, Any] | None = None) -> Path:
    """A run of the digits in two episodes of five classes, as keepset run leaves it, with random features."""
    labels = load(DataSettings()).train_labels
    shift = 0 if selector == "maxherding" else 1
    picks, generator = [], torch.Generator().manual_seed(1)
    (folder / "views").mkdir(parents=True)
    for number in (0, 1):
        inside = [(labels == label).nonzero().flatten() for label in range(5 * number, 5 * number + 5)]
        picks.append({str(5 * number + n): {"rows": rows[shift : shift + 3].tolist()} for n, rows in enumerate(inside)})
        held = labels[labels // 5 == number]
        tensors = {f"view.{name}": torch.randn(len(held), 5, generator=generator).half() for name in views}
        save_file({**tensors, "labels": held}, folder / "views" / f"{number + 1}.safetensors")
    settings = {"name": "digits", "order": "canonical", "episodes": 2, "image_size": 32, **(data or {})}
    identity = {
        "data": settings,
        "learner": "er-ace",
        "selector": selector,
        "views": list(views),
        "capacity": 20,
        "seed": 0,
        "train": {"epochs": 10},
    }
    result = {"accuracy": [[1.0], [0.5, 0.5]], "picks": picks, "identity": identity}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    config = {"identity": identity, "config": {"data": {"folder": "", **settings}}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: Any) -> Any:
    """Runs the command; the figure that it saved comes back with what it said."""
    monkeypatch.chdir(tmp_path)
    stored(Path("one"), "maxherding", ("supervised",))
    stored(Path("two"), "mers", ("supervised", "simclr"))
    saved: list[Any] = []
    monkeypatch.setattr("keepset.report.style.save", lambda figure, _: saved.append(figure))

    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "gallery", *arguments, "-o", "a.png"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        assert (ended.value.code == 0) == bool(saved)
        return (saved.pop() if saved else None), captured.out, captured.err

    return run


def test_command__two_runs_of_an_episode(call: Any) -> None:
    figure, out, err = call("one", "two", "--episode", "2")
    assert (out, err) == ("5 classes of 2 runs drawn in a.png\n", "")
    assert [axes.get_gid() for axes in axes_of(figure, "images")[::2]] == [f"images {label}" for label in range(5, 10)]
    assert len(axes_of(figure, "map")) == 5 * 2 * 2
    data = load(DataSettings())
    rows = (data.train_labels == 7).nonzero().flatten()
    axes = axes_of(figure, "images 7")[0]
    for image, row in zip(axes.images, rows[:3], strict=True):
        assert (np.asarray(image.get_array()) == data.train_images[row, 0].numpy()).all()
    assert [patch.get_gid() for patch in axes.patches] == ["alone", "shared", "shared"]


def test_command__picks_lie_where_the_run_saw_them(call: Any) -> None:
    figure, _, _ = call("two", "--classes", "7")
    rows = (load(DataSettings()).train_labels == 7).nonzero().flatten()
    points, _ = flat_map(features_of_classes("two", 2, {7: rows}, ["supervised"])[7]["supervised"])
    marks = [mark.get_xydata()[0] for mark in axes_of(figure, "map 7 supervised")[0].get_lines()]
    assert np.array(marks) == pytest.approx(points[1:4])


def test_command__without_maps(call: Any) -> None:
    figure, _, err = call("one", "--classes", "3,1", "--no-maps")
    assert [axes.get_gid() for axes in figure.axes] == ["images 3", "images 1"]
    assert err == ""


def test_command__a_run_that_kept_no_views_is_told(call: Any) -> None:
    for file in Path("two/views").iterdir():
        file.unlink()
    figure, _, err = call("one", "two", "--classes", "0")
    assert "no maps of mers on supervised + simclr" in err
    assert "--keep-views" in err
    titles = [axes.get_title(loc="left").partition(" (")[0] for axes in axes_of(figure, "map")]
    assert titles == ["supervised", "supervised*"]


def test_command__without_the_data_the_rows_are_drawn(call: Any) -> None:
    stored(Path("gone"), "mers", ("supervised",), {"name": "gone.npz"})
    figure, _, err = call("gone", "--classes", "0")
    assert "no images and no maps, the rows' numbers instead" in err
    [axes] = figure.axes
    assert not axes.images


@pytest.fixture
def begun_elsewhere(call: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """Runs of the caller's own file, named from project/, and then called from elsewhere/."""
    digits = load(DataSettings())
    arrays = {
        f"{part}_{what}": getattr(digits, f"{part}_{what}").numpy()
        for part in ("train", "test")
        for what in ("images", "labels")
    }
    (tmp_path / "project/data").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    np.savez(tmp_path / "project/data/mine.npz", **arrays)
    name = content(DataSettings(str(tmp_path / "project/data/mine.npz")))
    run = stored(tmp_path / "project/runs/run", "maxherding", ("supervised",), {"name": name})
    write_typed(run, name="data/mine.npz")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return call


def write_typed(run: Path, **data: str) -> None:
    """What was typed of the data when the run was begun."""
    path = run / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["config"]["data"] |= data
    path.write_text(json.dumps(config), encoding="utf-8")


def test_command__relative_data_are_found_from_another_folder(begun_elsewhere: Any) -> None:
    figure, _, err = begun_elsewhere("../project/runs/run", "--classes", "3")
    assert err == ""
    assert len(axes_of(figure, "images")[0].images) == 3
    assert axes_of(figure, "map")


def test_command__another_file_of_that_name_is_passed_over(begun_elsewhere: Any) -> None:
    Path("data").mkdir()
    np.savez("data/mine.npz", train_images=np.zeros((4, 2, 2), np.uint8))
    assert begun_elsewhere("../project/runs/run", "--classes", "3")[2] == ""
    Path("../project/data/mine.npz").unlink()
    figure, _, err = begun_elsewhere("../project/runs/run", "--classes", "3")
    assert not figure.axes[0].images
    assert "elsewhere/data/mine.npz is not what it was when the run read it, or another one" in err


@pytest.mark.parametrize("folder", ["../project", "../project/data", "../project/data/mine.npz"])
def test_command__a_relative_data_folder_is_taken_from_here(begun_elsewhere: Any, folder: str) -> None:
    shutil.move("../project/runs/run", "run")
    figure, _, err = begun_elsewhere("run", "--classes", "3")
    assert not figure.axes[0].images
    told = f"(--data-folder says where the data lie): there is no mine.npz in {Path.cwd()}, nor in a folder above run"
    assert told in err
    figure, _, err = begun_elsewhere("run", "--classes", "3", "--data-folder", folder)
    assert err == ""
    assert len(axes_of(figure, "images")[0].images) == 3


def test_command__data_are_found_by_the_result_alone(begun_elsewhere: Any) -> None:
    Path("../project/runs/run/config.json").unlink()
    assert begun_elsewhere("../project/runs/run", "--classes", "3", "--data-folder", "../project/data")[2] == ""


def test_command__a_data_folder_without_the_data_is_refused(begun_elsewhere: Any) -> None:
    run = "../project/runs/run"
    figure, _, err = begun_elsewhere(run, "--data-folder", "nowhere")
    assert figure is None
    assert err == (
        "keepset: --data-folder must be where the run's data lie, got nowhere: "
        f"there is no {Path('nowhere').resolve()}; name a folder that is there\n"
    )
    figure, _, err = begun_elsewhere(run, "--data-folder", ".")
    assert figure is None
    assert f"got .: there is no mine.npz in {Path.cwd()}; name the folder that it lies in" in err


def test_command__a_relative_folder_of_archives(begun_elsewhere: Any) -> None:
    Path("../project/data").rename("../project/archives")
    for path in (Path("../project/runs/run"), Path("run")):
        if not path.exists():
            stored(path, "maxherding", ("supervised",))
        result = path / "result.json"
        told = json.loads(result.read_text(encoding="utf-8"))
        told["identity"]["data"]["name"] = "cifar100"
        result.write_text(json.dumps(told), encoding="utf-8")
        write_typed(path, name="cifar100", folder="archives")
    places = {"../project/runs/run": Path("../project/archives"), "run": Path("archives")}
    for name, place in places.items():
        err = begun_elsewhere(name, "--classes", "3")[2]
        assert f"no cifar100 in {place.resolve()} (looked for" in err
    figure, _, err = begun_elsewhere("run", "--data-folder", "../project")
    assert figure is None
    assert f"got ../project: no cifar100 in {Path('../project').resolve()} (looked for" in err
    assert f"run `keepset data get cifar100 --folder {Path('../project').resolve()}`" in err


def test_command__data_that_changed_are_not_drawn(call: Any) -> None:
    path = Path("two/result.json")
    path.write_text(path.read_text(encoding="utf-8").replace('"digits"', '"other 0123"'), encoding="utf-8")
    figure, _, err = call("two", "--classes", "0")
    assert "is not what it was" in err
    assert not figure.axes[0].images


def test_command__more_than_ten_classes_are_told(call: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("keepset.commands.gallery.MOST_CLASSES", 4)
    figure, _, err = call("one")
    assert len(axes_of(figure, "images")) == 4
    assert "the first 4 of 10 classes; choose others with --classes" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "two", "--classes", "12"], "unknown class '12' in --classes"),
        (["one", "--episode", "1", "--classes", "7"], "unknown class '7' in --classes"),
        (["one", "--episode", "3"], "--episode must be in 1..2"),
        (["one", "--most", "0"], "--most must be in 1..1000"),
        (["one", "one"], "named twice"),
        (["nowhere"], "nowhere holds no finished run"),
    ],
)
def test_command__bad_input_ends_with_a_remedy(call: Any, arguments: list[str], message: str) -> None:
    figure, _, err = call(*arguments)
    assert figure is None
    assert message in err


def test_command__runs_of_other_data_are_refused(call: Any) -> None:
    stored(Path("other"), "mers", ("supervised",), {"order": 7})
    _, _, err = call("one", "other")
    assert "runs must share their data: order is 'canonical' in one, 7 in other" in err


def test_told_apart__names_have_what_differs_and_the_title_the_rest() -> None:
    def identity(**other: Any) -> dict[str, Any]:
        plain = {"data": {"name": "digits"}, "learner": "er", "selector": "mers", "views": ["a", "b"], "capacity": 20}
        return {**plain, "seed": 0, "train": {"epochs": 10}, **other}

    names, title = told_apart([(Path("x"), identity()), (Path("y"), identity(seed=1, selector="random", views=[]))])
    assert names == ["mers on a + b, seed 0", "random, seed 1"]
    assert title == "digits, er, |M| = 20, 10 epochs an episode"
    names, title = told_apart([(Path("x"), identity()), (Path("y"), identity(capacity=50, train={"epochs": 1}))])
    assert names == ["|M| = 20, 10 epochs an episode", "|M| = 50, 1 epoch an episode"]
    assert title == "digits, mers on a + b, er, seed 0"
    names, title = told_apart([(Path("x"), identity()), (Path("y"), identity(views=["a", "c"]))])
    assert names == ["on a + b", "on a + c"]
    assert title == "digits, mers, er, |M| = 20, seed 0, 10 epochs an episode"
    names, _ = told_apart([(Path("x"), identity()), (Path("y"), identity(options={"weights": "equal"}))])
    assert names == ["mers on a + b, x", "mers on a + b, y"], "by their folders, where nothing else tells"
