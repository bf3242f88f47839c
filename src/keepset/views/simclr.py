"""SimCLR (Chen et al., 2020): an image's augmented copy has to be found among those of all others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checks import check_range, positive_number
from .augment import Augmentation
from .losses import contrastive
from .pretrain import Method, OnEpoch, pretrained
from .settings import Pretraining

VERSION = 1  # of the numbers: raised whenever the same settings give other features


@dataclass(frozen=True)
class SimCLRAugmentation(Augmentation):
    blur: float = 0.0


@dataclass(frozen=True)
class SimCLRSettings(Pretraining):
    """SimCLR for a desk: solo-learn's recipe at a quarter of its rate and without blur, see the preset `solo-learn`."""

    rate: float = 0.1
    augmentation: SimCLRAugmentation = field(default_factory=SimCLRAugmentation)
    temperature: float = 0.2
    hidden: int = 2048
    """Width of the projector's inner layer."""
    output: int = 256
    """Dimensions of the projection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_number("temperature", self.temperature)
        check_range("hidden", self.hidden, 1, 2**20, "units")
        check_range("output", self.output, 1, 2**20, "units")


def simclr(
    images: Tensor,
    settings: SimCLRSettings | None = None,
    *,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Tensor:
    """(n, d) float32 features of `images`, (n, channels, height, width) uint8, by a network trained on them alone.

    It trains where the images are. With `checkpoint` it goes on from that file after a kill; `on_epoch` is told the
    epoch, its loss and the seconds left.
    """
    given = settings or SimCLRSettings()
    return pretrained(images, given, simclr_method(given), checkpoint=checkpoint, on_epoch=on_epoch)


def simclr_method(settings: SimCLRSettings) -> Method:
    return Method(
        "simclr", partial(_projector, settings=settings), partial(contrastive, temperature=settings.temperature)
    )


def _projector(features: int, settings: SimCLRSettings) -> nn.Module:
    """Two layers without batch-norm."""
    with torch.device("meta"):
        return nn.Sequential(
            nn.Linear(features, settings.hidden), nn.ReLU(), nn.Linear(settings.hidden, settings.output)
        )
