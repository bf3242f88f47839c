"""DINOv2 as a view: a frozen vision transformer, which has seen data from outside."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..checks import check_range
from .cache import Recipe

VERSION = 1  # raised whenever the numbers move
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
PATCH = 14
CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class DINOv2Settings:
    """Which weights, and how images are brought to them."""

    model: str = "facebook/dinov2-base"
    """A name of the hub, or a folder with config.json and model.safetensors."""
    size: int = 224
    """Images are resized to size × size, a multiple of the patch size 14."""
    batch: int = 128
    """Images at a time; changes no number beyond rounding."""
    fetch: bool = False
    """Download the weights if they are not here yet; nothing is fetched otherwise."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ValueError(f"model must be a name of the hub or a folder, got {self.model!r}")
        check_range("batch", self.batch, 1, 2**20, "images at a time")
        _check_size(check_range("size", self.size, PATCH, PATCH * 148, "pixels"), PATCH)


def dinov2(
    images: Tensor,
    settings: DINOv2Settings | None = None,
    on_batch: Callable[[int, int], object] | None = None,
) -> Tensor:
    """(n, d) float32: the CLS token after the last layer norm, on the images' device.

    images: (n, 1 or 3, h, w) uint8. on_batch: told how many images are done, and of how many.
    """
    settings = settings or DINOv2Settings()
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3) or len(images) == 0:
        found = f"{images.dtype} {tuple(images.shape)}"
        raise ValueError(f"images must be uint8 of shape (n, 1 or 3, h, w) with n at least 1, got {found}")
    model = _load(_folder(settings), settings.size).to(images.device)
    half = torch.autocast("cuda", torch.bfloat16) if images.device.type == "cuda" else nullcontext()
    features: list[Tensor] = []
    with torch.no_grad(), half:
        for batch in images.split(settings.batch):
            found = model(pixel_values=prepared(batch, settings.size)).last_hidden_state
            features.append(found[:, 0].float())
            if on_batch is not None:
                on_batch(sum(map(len, features)), len(images))
    return torch.cat(features)


def prepared(images: Tensor, size: int) -> Tensor:
    """(n, 3, size, size) float32: resized, grey repeated to three channels, normalised by ImageNet's statistics."""
    colour = images.float().expand(-1, 3, -1, -1) / 255
    if colour.shape[-2:] != (size, size):
        # antialias is also the filter of Pillow, with which the model's own processor resizes; it widens only to shrink
        colour = functional.interpolate(colour, (size, size), mode="bicubic", align_corners=False, antialias=True)
    mean, std = (torch.tensor(each, device=images.device).view(1, 3, 1, 1) for each in (MEAN, STD))
    return (colour.clamp(0, 1) - mean) / std  # bicubic overshoots at edges, which 8-bit images cannot


def weights_recipe(settings: DINOv2Settings, device: torch.device) -> Recipe:
    """What the features depend on besides the images: the weights' content, whatever their name, size and precision."""
    folder = _folder(settings)
    digests = {name: _digest(folder / name, (folder / name).stat().st_mtime_ns) for name in (CONFIG, WEIGHTS)}
    return Recipe(
        "dinov2",
        {**digests, "size": settings.size, "precision": "bfloat16" if device.type == "cuda" else "float32"},
        VERSION,
    )


@functools.lru_cache(maxsize=16)
def _digest(path: Path, _changed: int) -> str:
    """sha256 of a file; the weights have hundreds of megabytes, so it is remembered until the file changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_size(size: int, patch: int) -> None:
    if size % patch:
        near = max(patch, round(size / patch) * patch)
        raise ValueError(f"size must be a multiple of {patch}, the model's patch size, got {size}; take {near}")


# ---------------------------------------------------------------- weights


def _transformers() -> Any:
    """The library, which keepset does without unless asked for this view."""
    try:
        import transformers
    except ImportError:
        raise ValueError("the view dinov2 needs transformers; pip install keepset[dinov2]") from None
    return transformers


def _folder(settings: DINOv2Settings) -> Path:
    """The folder with the config and the weights: the one named, or the hub's snapshot on this machine."""
    given = Path(settings.model).expanduser()
    if given.is_dir():
        missing = [name for name in (CONFIG, WEIGHTS) if not (given / name).is_file()]
        if missing:
            raise ValueError(f"no {' and '.join(missing)} in {given}; put both {CONFIG} and {WEIGHTS} there")
        return given
    hub = _transformers().utils.hub
    # not the library's own look-up: even for files that are here, it first asks the hub's server for other things
    here = None
    with suppress(ValueError):  # a path that could be no name of the hub
        here = _snapshot(lambda name: hub.try_to_load_from_cache(settings.model, name))
    if here is None and not settings.fetch:
        raise _missing(settings.model, hub.constants.HF_HUB_CACHE)
    try:
        here = here or _snapshot(lambda name: hub.cached_file(settings.model, name))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot fetch {settings.model}: {error}") from None
    if here is None:
        raise ValueError(f"cannot fetch {settings.model}: it has no {CONFIG} and {WEIGHTS}")
    return here


def _snapshot(find: Callable[[str], Any]) -> Path | None:
    """The folder in which `find` finds both files."""
    config, weights = (find(name) for name in (CONFIG, WEIGHTS))
    both = isinstance(config, str) and isinstance(weights, str)
    return Path(weights).parent if both and Path(config).parent == Path(weights).parent else None


def _missing(model: str, cache: str) -> ValueError:
    return ValueError(
        f"no weights of {model}: looked for a folder of that name and in the hub's cache {cache}; fetch them with "
        f"--fetch on keepset encode or dinov2.fetch=true in a config, or put {CONFIG} and {WEIGHTS} into a folder "
        "and name it as the model"
    )


def _load(folder: Path, size: int) -> nn.Module:
    """The model in eval mode and float32, with every weight from the file; nothing is unpickled or looked up."""
    config = _config(folder)
    patch = config.get("patch_size", PATCH)
    _check_size(size, patch)
    transformers = _transformers()
    with _quiet(transformers.utils.logging):
        try:
            model, told = transformers.Dinov2Model.from_pretrained(
                str(folder), local_files_only=True, use_safetensors=True, output_loading_info=True
            )
        except Exception as error:  # the library raises many kinds for a damaged or foreign file
            raise ValueError(
                f"{folder / WEIGHTS} is damaged or does not fit {CONFIG} ({error}); get it again"
            ) from None
    # the library would fill these with random numbers; the mask token is for training alone
    missing = sorted(name for name in told["missing_keys"] if not name.endswith("mask_token"))
    if missing:
        raise ValueError(f"{folder / WEIGHTS} lacks {len(missing)} weights of DINOv2, such as {missing[0]}")
    module: nn.Module = model.float().eval()
    return module


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); get it again") from None
    if config.get("model_type") != "dinov2":
        raise ValueError(f"{path} must be of the model type dinov2, got {config.get('model_type')!r}")
    return config


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the library's progress bars and reports; both are as before afterwards."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
