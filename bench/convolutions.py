"""3×3 convolutions of eight runs, each with weights of its own: the layers of a ResNet-18 and 20 images a run.

python bench/convolutions.py [--runs 8] [--images 20] [--width 64]

Microseconds of all runs together, the best of five, in bfloat16: by our tiles in Triton; by cuDNN as one convolution in
groups; and by cuDNN for as many images that share one weight, which is as fast as it could be. On a CPU in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from keepset.learning import stacked

BEST_OF = 5
CUDA = torch.cuda.is_available()
DEVICE, TIMES = ("cuda", 50) if CUDA else ("cpu", 1)
Work = Callable[[], object]


def layers(width: int, side: int = 32) -> Iterator[tuple[int, int, int, int]]:
    """Channels before and after, the side of the maps that go in, and the stride."""
    yield width, width, side, 1
    for _ in range(3):
        yield width, 2 * width, side, 2
        width, side = 2 * width, side // 2
        yield width, width, side, 1


def microseconds(work: Work) -> float:
    """On a GPU as a graph: these are as short as launching them."""
    for _ in range(2):
        work()
    play = work
    if CUDA:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        play = graph.replay
    best = float("inf")
    for _ in range(BEST_OF):
        synchronise()
        begin = time.perf_counter()
        for _ in range(TIMES):
            play()
        synchronise()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best / TIMES


def synchronise() -> None:
    if CUDA:
        torch.cuda.synchronize()


def by_tiles(maps: Tensor, weight: Tensor, slopes: Tensor, stride: int) -> list[Work]:
    """Forward, to the maps and to the weight; maps: (runs, images, side, side, channels)."""
    runs, (flat, flat_slopes) = len(weight), (each.flatten(0, 1) for each in (maps, slopes))
    return [
        lambda: stacked.convolved(flat, weight, stride),
        lambda: stacked.to_maps(flat_slopes, weight, stride),
        lambda: stacked.to_weight(flat_slopes, flat, runs, stride),
    ]


def by_cudnn(maps: Tensor, weight: Tensor, slopes: Tensor, stride: int, groups: int) -> list[Work]:
    """The same with channels first by name, and last in memory."""
    sides = [stride, stride], [1, 1], [1, 1]

    def back(to_maps: bool) -> Work:
        wanted = [to_maps, not to_maps, False]
        return lambda: torch.ops.aten.convolution_backward(
            slopes, maps, weight, None, *sides, False, [0, 0], groups, wanted
        )

    return [lambda: functional.conv2d(maps, weight, None, stride, 1, 1, groups), back(True), back(False)]


def in_groups(maps: Tensor) -> Tensor:
    """(runs, images, side, side, channels) -> (images, runs · channels, side, side)."""
    return maps.permute(1, 2, 3, 0, 4).flatten(3).permute(0, 3, 1, 2)


def measured(runs: int, images: int, layer: tuple[int, int, int, int]) -> dict[str, list[float]]:
    before, after, side, stride = layer
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE, torch.bfloat16 if CUDA else torch.float32)

    maps, weight = random(runs, images, side, side, before), random(runs, after, 3, 3, before)
    slopes = random(runs, images, side // stride, side // stride, after)
    first, own = (each.flatten(0, 1).permute(0, 3, 1, 2) for each in (maps, weight))
    ways = {
        "tiles": by_tiles(maps, weight, slopes, stride),
        "groups": by_cudnn(in_groups(maps), own, in_groups(slopes), stride, runs),
        "one weight": by_cudnn(first, own[:after], slopes.flatten(0, 1).permute(0, 3, 1, 2), stride, 1),
    }
    return {way: [microseconds(work) for work in works] for way, works in ways.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--width", type=int, default=64)
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    where = torch.cuda.get_device_name() if CUDA else "CPU"
    print(f"torch {torch.__version__}, {where}, µs of {given.runs} runs: forward, to the maps, to the weight")
    print("| channels | maps | tiles | groups | one weight |\n| --- | --- | ---: | ---: | ---: |")
    for layer in layers(given.width):
        before, after, side, stride = layer
        found = measured(given.runs, given.images, layer)
        cells = " | ".join(", ".join(f"{value:.0f}" for value in values) for values in found.values())
        print(f"| {before} → {after} | {side} → {side // stride} | {cells} |", flush=True)
