"""scikit-learn's bundled handwritten digits: 1,797 grey images of 8 x 8, ten classes. No download."""

from __future__ import annotations

import numpy as np
import torch

from .dataset import Dataset, build, every_fifth


def load() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("digits come with scikit-learn; pip install keepset[data]") from None
    bundle = load_digits()
    # sixteen grey levels and white: 16 becomes 255
    images = torch.from_numpy(np.rint(bundle.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = bundle.target
    test = every_fifth(labels)
    # a mirrored digit is another sign, and the strokes fill the frame: no flip, and crops that move by one pixel
    return build("digits", (images[~test], labels[~test]), (images[test], labels[test]), padding=1, flip=False)
