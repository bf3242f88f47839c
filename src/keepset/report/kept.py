"""The views that a run kept, read back."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

REMEDY = "run it again with --keep-views --again, if its selector reads views"


def read_kept_views(run: str | Path, episode: int) -> tuple[dict[str, Tensor], Tensor]:
    """Name -> (n, d) and labels (n,) of an episode, counted from 1."""
    from safetensors import SafetensorError, safe_open

    folder = Path(run) / "views"
    if not folder.is_dir():
        raise ValueError(f"{run} did not keep its views; {REMEDY}")
    path = folder / f"{episode}.safetensors"
    if not path.is_file():
        raise ValueError(f"{run} did not keep the views of episode {episode}; {REMEDY}")
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a mapping
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}); {REMEDY}") from None
    views = {key.removeprefix("view."): tensor for key, tensor in tensors.items() if key.startswith("view.")}
    if not views or "labels" not in tensors:
        raise ValueError(f"{path} holds no views with labels; {REMEDY}")
    return views, tensors["labels"]
