"""Image files decoded to tensors, by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_pillow() -> None:
    """Say how to install Pillow before any work is done without it."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ValueError("image files are read by Pillow; pip install keepset[data]") from None


def decode(content: bytes, size: int | None = None) -> Tensor:
    """(3, height, width) uint8, upright as the camera noted; with `size`, resized to that square (bicubic)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content)) as file:
            image = _eight_bits(ImageOps.exif_transpose(file)).convert("RGB")
    except Exception as error:  # a decoder may raise anything on a broken file
        raise ValueError(f"is damaged or no image ({error})") from None
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _eight_bits(image: Any) -> Any:
    """Grey levels of sixteen bits as those of eight: Pillow would cut them off at 255."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("floating-point levels; save it with 8 or 16 bits")
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 65_535) / 257).round().astype(np.uint8))
