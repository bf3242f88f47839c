"""Settings that SimCLR and VICReg share."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..checks import check_choice, check_range, positive_number
from ..learning.models import MODELS
from .augment import Augmentation


@dataclass(frozen=True)
class Pretraining:
    """How a network is trained on images alone. The learning rate is for 256 images a step and grows with the batch."""

    epochs: int = 200
    batch: int = 256
    rate: float = 0.4
    warmup: int = 10
    """Epochs in which the rate rises in a straight line; then it falls like a cosine."""
    momentum: float = 0.9
    eta: float = 0.02
    """LARS: a layer's step, as a part of its weights' size, at a learning rate of one."""
    clip: bool = False
    """LARS: a layer's rate is never above the learning rate."""
    weight_decay: float = 1e-4
    model: str = "auto"
    """`resnet18`, `small`, or `auto`: small for images below 16 pixels, else the ResNet."""
    width: int = 64
    """The ResNet's first width: it has eight times as many features."""
    precision: str = "auto"
    """`float32`, `bfloat16` (autocast), or `auto`: bfloat16 on CUDA, float32 elsewhere."""
    compile: bool = True
    """On CUDA: let torch.compile write the kernels. The numbers move by rounding alone."""
    seed: int = 0
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        check_range("epochs", self.epochs, 1, 10**6, "passes over the images")
        check_range("batch", self.batch, 2, 10**6, "images a step")
        check_range("warmup", self.warmup, 0, 10**6, "epochs")
        check_range("width", self.width, 1, 4096, "channels")
        check_range("seed", self.seed, 0, 2**62, "a seed")
        check_choice("model", self.model, MODELS)
        check_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        positive_number("rate", self.rate)
        positive_number("eta", self.eta)
        for name in ("momentum", "weight_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)!r}")


def resolved_precision(settings: Pretraining, device: torch.device) -> str:
    """`auto` in words."""
    if settings.precision != "auto":
        return settings.precision
    return "bfloat16" if device.type == "cuda" else "float32"
