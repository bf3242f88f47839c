"""VICReg (Bardes, Ponce and LeCun, 2022): copies agree, every dimension varies, no two vary together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checks import check_range
from .augment import Augmentation
from .losses import variance_invariance_covariance
from .pretrain import Method, OnEpoch, pretrained
from .settings import Pretraining

VERSION = 1  # of the numbers: raised whenever the same settings give other features


@dataclass(frozen=True)
class VICRegAugmentation(Augmentation):
    """Gentler than SimCLR's."""

    crop: tuple[float, float] = (0.2, 1.0)
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    blur: float = 0.0
    solarise: float = 0.1


@dataclass(frozen=True)
class VICRegSettings(Pretraining):
    """VICReg for a desk: solo-learn's recipe without clipped rates, see the preset `solo-learn`."""

    rate: float = 0.3
    augmentation: VICRegAugmentation = field(default_factory=VICRegAugmentation)
    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0
    hidden: int = 2048
    """Width of the projector's two inner layers."""
    output: int = 2048
    """Dimensions of the projection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("hidden", self.hidden, 1, 2**20, "units")
        check_range("output", self.output, 2, 2**20, "units")
        for name in ("invariance", "variance", "covariance"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)!r}")


def vicreg(
    images: Tensor,
    settings: VICRegSettings | None = None,
    *,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Tensor:
    """(n, d) float32 features of `images`, (n, channels, height, width) uint8, by a network trained on them alone.

    It trains where the images are. With `checkpoint` it goes on from that file after a kill; `on_epoch` is told the
    epoch, its loss and the seconds left.
    """
    given = settings or VICRegSettings()
    return pretrained(images, given, vicreg_method(given), checkpoint=checkpoint, on_epoch=on_epoch)


def vicreg_method(settings: VICRegSettings) -> Method:
    parts = {name: getattr(settings, name) for name in ("invariance", "variance", "covariance")}
    return Method("vicreg", partial(_projector, settings=settings), partial(variance_invariance_covariance, **parts))


def _projector(features: int, settings: VICRegSettings) -> nn.Module:
    """Three layers, batch-norm after the first two."""
    with torch.device("meta"):
        return nn.Sequential(
            nn.Linear(features, settings.hidden),
            nn.BatchNorm1d(settings.hidden),
            nn.ReLU(),
            nn.Linear(settings.hidden, settings.hidden),
            nn.BatchNorm1d(settings.hidden),
            nn.ReLU(),
            nn.Linear(settings.hidden, settings.output),
        )
