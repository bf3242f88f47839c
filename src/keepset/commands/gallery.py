"""keepset gallery: what runs kept, to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import listed
from .console import say, warn

if TYPE_CHECKING:
    from ..data import Dataset, DataSettings
    from ..report.gallery import Kept

Option = typer.Option
MOST_CLASSES = 10


@dataclass(frozen=True, eq=False)
class _Run:
    folder: Path
    result: Mapping[str, Any]
    where: Mapping[int, int]
    """Class -> the episode that brought it, counted from 1."""

    def picks(self, label: int) -> list[int]:
        rows: list[int] = self.result["picks"][self.where[label] - 1][str(label)]["rows"]
        return rows


def gallery(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs of one data set.")],
    output: Annotated[Path, Option("-o", "--output", help="Write .png, .pdf or .svg.")],
    episode: Annotated[int | None, Option(help="The classes of one episode, counted from 1; else all.")] = None,
    classes: Annotated[str | None, Option(help="Classes by number or name: 0,1; else the first ten.")] = None,
    most: Annotated[int, Option(help="Show so many images of a class, the first picked.")] = 20,
    maps: Annotated[bool, Option("--maps/--no-maps", help="Where the kept images lie in the views.")] = True,
    data_folder: Annotated[Path | None, Option(help="Where the data lie; else as the run had it.")] = None,
) -> None:
    """Draw the images that runs kept, class by class in the order picked, and where they lie in each view.

    \b
    Examples:
      keepset gallery runs/0123456789abcdef -o kept.png
      keepset gallery runs/MAXHERDING runs/MERS --episode 1 -o two-views.pdf
      keepset gallery runs/MAXHERDING runs/MERS --classes 3,8 --most 10 -o three-and-eight.png
    """
    from ..checks import check_range
    from ..report.gallery import draw_gallery
    from ..report.style import check_picture, save

    check_picture(output)
    check_range("--most", most, 1, 1000, "images of a class")
    read = _read(runs)
    data = _data(read[0], data_folder)
    shown = _classes(read, episode, classes, data)
    names, title = told_apart([(run.folder, run.result["identity"]) for run in read])
    kept = [_kept(run, name, shown, data if maps else None) for run, name in zip(read, names, strict=True)]
    images, class_names = (None, None) if data is None else (data.train_images, data.class_names)
    save(draw_gallery(kept, shown, images=images, names=class_names, most=most, title=title), output)
    say(f"{_count(len(shown), 'class', 'classes')} of {_count(len(read), 'run', 'runs')} drawn in {output}")


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


# ---------------------------------------------------------------- reading


def _read(folders: Sequence[Path]) -> list[_Run]:
    """The runs, if their rows and classes mean the same."""
    from ..experiment.finished import read_result

    found: list[_Run] = []
    for folder in folders:
        if folder.resolve() in [run.folder.resolve() for run in found]:
            raise ValueError(f"{folder} is named twice; name each run once")
        result = read_result(folder)
        where = {int(label): number for number, each in enumerate(result["picks"], start=1) for label in each}
        found.append(_Run(folder, result, where))
        for name, one, other in _differences(found[0].result["identity"]["data"], result["identity"]["data"]):
            raise ValueError(f"runs must share their data: {name} is {one!r} in {folders[0]}, {other!r} in {folder}")
    return found


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*first, *second])
    return [(name, first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)]


def _data(run: _Run, folder: Path | None) -> Dataset | None:
    """The data set that the run had. Without it, what is missing is said; in a folder that was named it must lie."""
    try:
        return _first(_candidates(run, folder), run.result["identity"]["data"]["name"])
    except ValueError as error:
        if folder is not None:
            raise ValueError(f"--data-folder must be where the run's data lie, got {folder}: {error}") from None
        warn(f"no images and no maps, the rows' numbers instead (--data-folder says where the data lie): {error}")
        return None


def _first(candidates: Sequence[DataSettings], wanted: str) -> Dataset:
    """The first of them that is what the run read."""
    from ..data import content, load

    errors: list[ValueError] = []
    for settings in candidates:
        try:
            if content(settings) == wanted:
                return load(settings)
            errors.append(ValueError(f"{settings.name} is not what it was when the run read it, or another one"))
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def _candidates(run: _Run, folder: Path | None) -> list[DataSettings]:
    """Where the run's data may lie.

    Its config has paths as they were typed: relative ones are taken from here, and then from the folders above the
    run's, since it was begun in one of them as a rule.
    """
    from ..data import DATASETS

    settings = _settings(run)
    if folder is not None and not folder.expanduser().exists():
        raise ValueError(f"there is no {folder.expanduser().resolve()}; name a folder that is there")
    places = [Path(), *run.folder.resolve().parents] if folder is None else [folder.expanduser()]
    if settings.name not in DATASETS:
        return [replace(settings, name=str(path)) for path in _own(run, settings.name, places)]
    if folder is None and not settings.folder:
        return [settings]
    inside = Path(settings.folder).expanduser() if folder is None else Path()
    folders = _there(places, [inside]) or [(places[0] / inside).resolve()]
    return [replace(settings, folder=str(each)) for each in folders]


def _own(run: _Run, typed: str, places: Sequence[Path]) -> list[Path]:
    """The caller's own files or folders of that name in `places`, or a place itself that is called so."""
    wanted = run.result["identity"]["data"]["name"]
    name = wanted.rpartition(" ")[0] or wanted  # behind it stands a digest of what is in it
    itself = [place for place in places if place.resolve().name == name]
    found = _there(places, [Path(typed).expanduser(), Path(name)]) + _there(itself, [Path()])
    if not found:
        more = f", nor in a folder above {run.folder}" if len(places) > 1 else "; name the folder that it lies in"
        raise ValueError(f"there is no {name} in {places[0].resolve()}{more}")
    return found


def _there(places: Sequence[Path], names: Sequence[Path]) -> list[Path]:
    paths = dict.fromkeys((place / name).resolve() for place in places for name in names)
    return [path for path in paths if path.exists()]


def _settings(run: _Run) -> DataSettings:
    """The data set as the run's config has it, or as well as its result tells."""
    from ..data import DataSettings

    try:
        given = json.loads((run.folder / "config.json").read_text(encoding="utf-8"))["config"]["data"]
    except (OSError, ValueError, KeyError):
        given = {**run.result["identity"]["data"], "folder": ""}
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return DataSettings(**plain)


def _classes(runs: Sequence[_Run], episode: int | None, text: str | None, data: Dataset | None) -> list[int]:
    """The classes to draw, in the order they were learned or as they are named."""
    from ..checks import check_range

    episodes = len(runs[0].result["picks"])
    if episode is not None:
        check_range("--episode", episode, 1, episodes, "the episodes of the run")
    there = [label for label, number in runs[0].where.items() if episode in (None, number)]
    for run in runs:
        there = [label for label in there if label in run.where]
    if text is not None:
        return list(dict.fromkeys(_label(part, there, data) for part in listed(text) or []))
    if len(there) > MOST_CLASSES:
        warn(f"the first {MOST_CLASSES} of {len(there)} classes; choose others with --classes")
    return there[:MOST_CLASSES]


def _label(part: str, there: Sequence[int], data: Dataset | None) -> int:
    from ..checks import nearest_name

    names = {} if data is None else {data.class_names[label]: label for label in there}
    if part.isdigit() and int(part) in there:
        return int(part)
    if part in names:
        return names[part]
    known = [str(label) for label in there] if part.isdigit() else [*names] or [str(label) for label in there]
    raise ValueError(f"unknown class {part!r} in --classes; {nearest_name(part, known)}")


def _kept(run: _Run, name: str, classes: Sequence[int], data: Dataset | None) -> Kept:
    """The run's picks, and its views of those classes if it kept them and the data tell which point is which image."""
    from ..report.gallery import Kept
    from ..report.maps import features_of_classes

    picks, selector = {label: run.picks(label) for label in classes}, str(run.result["identity"]["selector"])
    if data is None:
        return Kept(name, picks, selector=selector)
    rows = {label: (data.train_labels == label).nonzero().flatten() for label in classes}
    if not run.result["identity"]["views"]:
        return Kept(name, picks, rows, selector=selector)
    views: dict[int, dict[str, Any]] = {}
    try:
        for number in dict.fromkeys(run.where[label] for label in classes):
            wanted = {label: rows[label] for label in classes if run.where[label] == number}
            views |= features_of_classes(run.folder, number, wanted, run.result["identity"]["views"])
    except ValueError as error:
        warn(f"no maps of {name}: {error}")
        views = {}
    return Kept(name, picks, rows, views, selector)


# ---------------------------------------------------------------- names


def told_apart(runs: Sequence[tuple[Path, Mapping[str, Any]]]) -> tuple[list[str], str]:
    """A name for each run, with what is not the same in all; and a title of what is.

    Where nothing else tells, a name is the selector and its views.
    """
    parts = [_parts(identity) for _, identity in runs]
    varying = [place for place in range(len(parts[0])) if len({each[place] for each in parts}) > 1] or [0, 1]
    names = [_joined([part if place in varying else "" for place, part in enumerate(each)]) for each in parts]
    shared = ["" if place in varying else part for place, part in enumerate(parts[0])]
    title = ", ".join(filter(None, [str(runs[0][1]["data"]["name"]), _joined(shared)]))
    folders = [folder.name[:8] for folder, _ in runs]
    return [
        f"{name}, {folder}" if names.count(name) > 1 else name for name, folder in zip(names, folders, strict=True)
    ], title


def _joined(parts: Sequence[str]) -> str:
    """The selector and its views, then the others; what is empty is left out."""
    return ", ".join(filter(None, [" ".join(filter(None, parts[:2])), *parts[2:]]))


def _parts(identity: Mapping[str, Any]) -> list[str]:
    from ..report.fields import counted

    return [
        str(identity["selector"]),
        f"on {' + '.join(identity['views'])}" if identity["views"] else "",
        str(identity["learner"]),
        f"|M| = {identity['capacity']}",
        f"seed {identity['seed']}",
        f"{counted(identity['train']['epochs'], 'epoch')} an episode",
    ]
