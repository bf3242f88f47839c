"""ResNet-18 for small images, and a small net for digits. Initialised from a generator of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..checks import check_choice, check_range, read_generator
from . import stacked
from .aside import Convolution
from .norm import Norm, Parts

LARGEST = 2**20
INITIALISATIONS = ("he", "torch")
Network = TypeVar("Network", bound=nn.Module)


class Classifier(nn.Module, ABC):
    """(b, channels, height, width) -> features (b, d) -> logits (b, classes). Subclasses give the body."""

    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.size = size
        """Number of features."""
        self.head: nn.Module = nn.Linear(size, classes)

    @abstractmethod
    def features(self, images: Tensor, parts: Parts = ()) -> Tensor:
        """(b, d): what the head reads; batch-norm takes the statistics of each part of the batch by itself."""

    def forward(self, images: Tensor, parts: Parts = (), along: Tensor | None = None) -> Tensor:
        """(b, classes); with `along`, a direction of the head's weight, beside them how they change that way.

        A network of several runs: (runs, b, channels, height, width) -> (runs, b, classes).
        """
        if images.ndim == 5:
            features = self.features(images.flatten(0, 1), parts)
            return stacked.linear(features, self.head)
        features = self.features(images, parts)
        logits: Tensor = self.head(features)
        if along is None:
            return logits
        return torch.cat([logits, functional.linear(features.detach(), along.to(features.dtype))], 1)


def through(layers: Iterable[nn.Module], maps: Tensor, parts: Parts) -> Tensor:
    """The maps after all layers."""
    for layer in layers:
        maps = layer(maps, parts) if isinstance(layer, (Norm, Block)) else layer(maps)
    return maps


class Point(nn.Conv2d):
    """A 1×1 convolution without bias; on a GPU a product of matrices.

    cuDNN's guess for one of stride 2 is an algorithm without tensor cores, between two changes of layout: 0.19 of the
    6.9 ms of a step of 512 images.
    """

    def forward(self, maps: Tensor) -> Tensor:
        if not maps.is_cuda and self.weight.ndim == 4:
            return super().forward(maps)
        return self.as_product(maps)

    def as_product(self, maps: Tensor) -> Tensor:
        """(b, c, h, w), in the layout of the tensor cores -> (b, k, h / stride, w / stride), in the same."""
        down, across = self.stride
        picked = maps[:, :, ::down, ::across].permute(0, 2, 3, 1)
        weight = self.weight.flatten(-3)
        found = functional.linear(picked, weight) if weight.ndim == 2 else stacked.product(picked, weight)
        return found.permute(0, 3, 1, 2)


class Block(nn.Module):
    """Two 3×3 convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = Convolution(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = Norm(after, rectified=True)
        self.convolution2 = Convolution(after, after, 3, padding=1, bias=False)
        self.norm2 = Norm(after, rectified=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(Point(before, after, 1, stride, bias=False), Norm(after))

    def forward(self, maps: Tensor, parts: Parts = ()) -> Tensor:
        around = through(self.shortcut, maps, parts)
        found: Tensor = self.norm2(self.convolution2(self.norm1(self.convolution1(maps), parts)), parts, around)
        return found


class ResNet18(Classifier):
    """A 3×3 stem of stride 1, no max-pool, four stages of two blocks, mean over the map."""

    def __init__(self, classes: int, width: int, channels: int) -> None:
        super().__init__(8 * width, classes)
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), Norm(width, rectified=True))
        blocks = [Block(width, width, 1), Block(width, width, 1)]
        for before in (width, 2 * width, 4 * width):
            blocks += [Block(before, 2 * before, 2), Block(2 * before, 2 * before, 1)]
        self.blocks = nn.Sequential(*blocks)

    def features(self, images: Tensor, parts: Parts = ()) -> Tensor:
        """(b, 8 · width)."""
        convolution, norm = self.stem
        weight: Tensor = convolution.weight  # type: ignore[assignment]
        maps: Tensor = as_product(images, weight) if images.is_cuda or weight.ndim == 5 else convolution(images)
        return through([norm, *self.blocks], maps, parts).mean((2, 3))


def as_product(images: Tensor, weight: Tensor) -> Tensor:
    """A 3×3 convolution of few channels, padding 1, as a product of matrices, in the layout of the tensor cores.

    images: (b, c, h, w); weight: (k, c, 3, 3), or (runs, k, c, 3, 3) of several runs. cuDNN leaves the tensor cores
    aside for three channels: the stem took 0.34 of the 6.8 ms of a step of 512 images. One product for each image, so
    that the gradient of the weight is summed over images at the end, and not by one long product of few columns.
    """
    count, channels, height, width = images.shape
    padded = functional.pad(images, (1, 1, 1, 1)).permute(0, 2, 3, 1)
    shifted = [padded[:, top : top + height, left : left + width] for top in range(3) for left in range(3)]
    missing = -9 * channels % 16  # columns of zeros: the tensor cores take steps of 16
    patches = functional.pad(torch.cat(shifted, dim=3), (0, missing)).reshape(count, height * width, -1)
    columns = weight.reshape(-1, *weight.shape[-4:]).permute(0, 3, 4, 2, 1).flatten(1, 3)
    columns = functional.pad(columns, (0, 0, 0, missing))  # (runs, 9c + missing, k)
    own = columns[:, None].expand(-1, count // len(columns), -1, -1).flatten(0, 1)
    maps = torch.bmm(patches, own)  # (b, h · w, k)
    return maps.view(count, height, width, -1).permute(0, 3, 1, 2)


class SmallNet(Classifier):
    """Two 3×3 convolutions, each followed by a halving of the map; what is left of it are the features."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__(128, classes)
        self.body = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1, bias=False),
            Norm(16, rectified=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            Norm(32, rectified=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )

    def features(self, images: Tensor, parts: Parts = ()) -> Tensor:
        """(b, 128)."""
        return through(self.body, images, parts)


def resnet18(
    classes: int,
    width: int = 64,
    channels: int = 3,
    *,
    generator: int | torch.Generator | None = None,
    initialisation: str = "he",
) -> ResNet18:
    """ResNet-18 for small images with 8 · `width` features; width 20 is the slim one.

    >>> sum(weight.numel() for weight in resnet18(100).parameters())
    11220132
    """
    _check(classes, channels)
    check_range("width", width, 1, LARGEST, "maps of the first stage")
    with torch.device("meta"):  # here the layers' own initialisation draws nothing
        network = ResNet18(classes, width, channels)
    return initialise(network, generator, initialisation)


def small_net(
    classes: int,
    channels: int = 1,
    *,
    generator: int | torch.Generator | None = None,
    initialisation: str = "he",
) -> SmallNet:
    """A net of two convolutions with 128 features, for images of 8×8 such as the digits."""
    _check(classes, channels)
    with torch.device("meta"):
        network = SmallNet(classes, channels)
    return initialise(network, generator, initialisation)


def _check(classes: int, channels: int) -> None:
    check_range("classes", classes, 1, LARGEST, "units of the head")
    check_range("channels", channels, 1, LARGEST, "channels of an image")


@torch.no_grad()
def initialise(network: Network, generator: int | torch.Generator | None, kind: str = "he") -> Network:
    """The network (of the meta device, say) on the CPU, every weight drawn from the generator, layer by layer."""
    check_choice("initialisation", kind, INITIALISATIONS)
    source = read_generator(generator)
    network.to_empty(device="cpu")
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d) and kind == "he":  # He et al.: the variance of what flows back is kept
            fan_out = layer.out_channels * math.prod(layer.kernel_size)
            layer.weight.normal_(0, math.sqrt(2 / fan_out), generator=source)
        elif isinstance(layer, (nn.Conv2d, nn.Linear)):
            draw_as_torch(layer.weight, layer.bias, source)
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, Norm)):
            layer.reset_parameters()  # 1 and 0, and the running statistics too
    return network


def draw_as_torch(weight: Tensor, bias: Tensor | None, source: torch.Generator) -> None:
    """In place, as torch begins its layers: uniform within ± 1/√(inputs of a unit), variance 1/3 over the inputs."""
    bound = 1 / math.sqrt(weight[0].numel())
    weight.uniform_(-bound, bound, generator=source)
    if bias is not None:
        bias.uniform_(-bound, bound, generator=source)


@torch.no_grad()
def draw_units(network: Classifier, classes: Sequence[int], source: torch.Generator) -> None:
    """The head's units of these classes drawn anew, in place, as units are drawn at first."""
    weight, bias = network.head.parameters()
    fresh = torch.empty(len(classes), network.size), torch.empty(len(classes))
    draw_as_torch(*fresh, source)
    weight[list(classes)], bias[list(classes)] = (drawn.to(weight.device) for drawn in fresh)
