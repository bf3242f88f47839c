"""keepset encode: images to an embedding, with no training loop."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import listed, nested_settings
from .console import say, show_table, warn
from .progress import bars, told_of_views

if TYPE_CHECKING:
    from torch import Tensor

    from ..experiment.config import RunConfig
    from ..views import Made

Option = typer.Option


def encode(
    images: Annotated[str, typer.Argument(help="A folder of images, .npz, .npz:key, .npy, or a data set's name.")],
    encoder: Annotated[str, Option(help="simclr, vicreg, dinov2, pixels, my_module:embed; a list for a data set.")],
    output: Annotated[Path | None, Option("-o", "--output", help="Write the embedding to this .npy file.")] = None,
    labels: Annotated[str | None, Option(help="File with a label an image, to tell the 20-NN accuracy.")] = None,
    names: Annotated[Path | None, Option(help="Write the images' file names here, a line a row of the output.")] = None,
    preset: Annotated[str | None, Option(help="desk (200 epochs), solo-learn (1000) or digits.")] = None,
    epochs: Annotated[int | None, Option(help="Epochs of simclr and vicreg.")] = None,
    image_size: Annotated[int, Option(help="Side to which the images of a folder are resized.")] = 32,
    episode: Annotated[int | None, Option(help="Only this episode of a data set, counted from 1.")] = None,
    model: Annotated[str | None, Option(help="DINOv2: a name of the hub, or a folder with the weights.")] = None,
    fetch: Annotated[bool, Option("--fetch", help="DINOv2: download the weights if they are not here.")] = False,
    device: Annotated[str | None, Option(help="cpu or cuda; if not given, cuda where there is one.")] = None,
    data_folder: Annotated[str | None, Option(help="Where data sets lie.")] = None,
    cache: Annotated[str | None, Option(help="Folder of the cache.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Any other setting: --set simclr.rate=0.2.")] = None,
) -> None:
    """Embed images: train an encoder on them, or run a frozen one; what is made is kept in a cache.

    Of a data set, every episode is embedded by an encoder of its own, as keepset run will want it.

    \b
    Examples:
      keepset encode photos/ --encoder simclr -o simclr.npy --names files.txt
      keepset encode images.npz --encoder vicreg --epochs 50 -o vicreg.npy
      keepset encode photos/ --encoder dinov2 --model dinov2-base/ -o dinov2.npy
      keepset encode cifar100 --encoder simclr,vicreg
    """
    from ..data import DATASETS
    from ..experiment.config import make_config
    from ..views.encoders import LEARNED

    given: dict[str, Any] = {
        "data.name": images if images in DATASETS else None,
        "data.folder": data_folder,
        "view_preset": preset or (None if images in DATASETS else "desk"),
        "simclr.epochs": epochs,
        "vicreg.epochs": epochs,
        "dinov2.model": model,
        "dinov2.fetch": fetch or None,
        "device": device,
        "cache": cache,
        "selector": "random",  # which reads no view: nothing is asked of encoders that are not named here
    }
    config = make_config(flags=nested_settings(given, set_ or []))
    warnings.showwarning = lambda message, *_: warn(str(message))
    encoders = listed(encoder) or []
    _check_read(encoders, LEARNED, {"--preset": preset, "--epochs": epochs})
    _check_read(encoders, ("dinov2",), {"--model": model, "--fetch": fetch or None})
    if images in DATASETS:
        _check_unused(f"of the data set {images}", {"--labels": labels, "--names": names})
        _encode_episodes(config, encoders, episode, output)
    else:
        _check_unused("of a folder or file", {"--episode": episode})
        _encode_pool(config, encoders, images, image_size, output, labels, names)


def _check_unused(of: str, flags: dict[str, object]) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise ValueError(f"{flag} means nothing {of}; leave it out")


def _check_read(encoders: list[str], readers: Sequence[str], flags: dict[str, object]) -> None:
    """Refuse flags that none of the encoders reads."""
    if not set(encoders) & set(readers):
        for flag, value in flags.items():
            if value is not None:
                raise ValueError(
                    f"{flag} is for {' and '.join(readers)}, got --encoder {','.join(encoders)}; leave it out"
                )


def _check_encoders(encoders: list[str]) -> None:
    from ..views import OWN, check_name

    for name in encoders:
        check_name(name)
        if name in OWN:
            raise ValueError(f"the view {name!r} is a learner's own; keepset run makes it")


def _make(config: RunConfig, name: str, images: Tensor, mirrored: bool, episode: dict[str, int]) -> Made:
    """One view, with a bar."""
    from ..views import Cache, Material, make_view

    with bars() as progress:
        told = told_of_views(progress)
        material = Material(
            settings=config.encoder_settings(mirrored),
            cache=Cache(config.cache),
            on_epoch=lambda record: told({**record, **episode}),
            on_wait=warn,
        )
        return make_view(name, images.to(config.device), material)


# ---------------------------------------------------------------- a folder or a file


def _encode_pool(
    config: RunConfig,
    encoders: list[str],
    source: str,
    image_size: int,
    output: Path | None,
    labels: str | None,
    names: Path | None,
) -> None:
    from ..data.pool import read_pool, read_targets
    from ..files import check_place, write_atomically
    from ..views import neighbour_accuracy

    if output is None:
        raise ValueError("-o must name a file for the embedding, such as -o simclr.npy")
    _check_output(output)
    if names is not None:
        check_place(names)
    if len(encoders) != 1:
        raise ValueError(f"--encoder must be one for a folder or file, got {', '.join(encoders) or 'none'}")
    _check_encoders(encoders)
    pool = read_pool(source, image_size)
    targets = pool.labels if labels is None else read_targets(labels, len(pool.images))
    made = _make(config, encoders[0], pool.images, pool.mirrored, {})
    _write_array(output, made.features)
    if names is not None:
        write_atomically(
            names, lambda path: path.write_text("".join(f"{name}\n" for name in pool.names), encoding="utf-8")
        )
    count, size = made.features.shape
    say(f"{count} x {size} written to {output}{_kept(made)}")
    if targets is not None and count > 1:
        say(f"20-NN accuracy {100 * neighbour_accuracy(made.features, targets):.1f} %")


def _kept(made: Made) -> str:
    return f", cache entry {made.entry[:8]}" if made.entry else ""


def _check_output(output: Path) -> None:
    from ..files import check_place

    if output.suffix != ".npy":
        raise ValueError(f"--output must end in .npy, got {output}")
    check_place(output)


def _write_array(output: Path, features: Tensor) -> None:
    import numpy as np

    from ..files import write_atomically

    write_atomically(output, lambda path: np.save(path, features.cpu().numpy()))


# ---------------------------------------------------------------- the episodes of a data set


def _encode_episodes(config: RunConfig, encoders: list[str], only: int | None, output: Path | None) -> None:
    from ..checks import check_range
    from ..data import load, split
    from ..views import neighbour_accuracy

    _check_encoders(encoders)
    if output is not None:
        _check_output(output)
        if only is None or len(encoders) != 1:
            raise ValueError("-o holds one embedding; name one --encoder and one --episode of the data set")
    data = load(config.data)
    episodes = split(data, config.data)
    if only is not None:
        check_range("--episode", only, 1, len(episodes), "episodes of this data set")
    rows = []
    for number, episode in enumerate(episodes, start=1):
        if only not in (None, number):
            continue
        cells = [str(number)]
        for name in encoders:
            made = _make(config, name, episode.train_images, data.flip, {"episode": number})
            cells.append(f"{100 * neighbour_accuracy(made.features, episode.train_labels):.1f}")
            warn(f"{name} of episode {number}: 20-NN accuracy {cells[-1]} %{_kept(made)}")
            if output is not None:
                _write_array(output, made.features)
        rows.append(cells)
    _show_qualities(config, encoders, rows)


def _show_qualities(config: RunConfig, encoders: list[str], rows: list[list[str]]) -> None:
    say(f"{config.data.name}, 20-NN accuracy inside each episode, leaving one out, per cent")
    if len(rows) > 1:
        columns = zip(*(row[1:] for row in rows), strict=True)
        rows = [*rows, ["mean", *(f"{sum(map(float, column)) / len(rows):.1f}" for column in columns)]]
    show_table(["episode", *encoders], rows, right=encoders)
