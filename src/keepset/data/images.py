"""Image files decoded to tensors, by Pillow."""

from __future__ import annotations

import io

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
            image = ImageOps.exif_transpose(file).convert("RGB")
    except Exception as error:  # a decoder may raise anything on a broken file
        raise ValueError(f"is damaged or no image ({error})") from None
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
