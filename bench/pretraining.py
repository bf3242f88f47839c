"""How long a step of self-supervised training takes on a GPU, and where the time goes.

python bench/pretraining.py [--methods simclr] [--ways compiled captured eager] [--parts] [--profile FILE]

256 images of 32 x 32, two copies each, ResNet-18 of width 64, bfloat16. The pixels are random: time does not depend on
them. Without a GPU the same steps run on the CPU with a slim network, few of them, to show that they run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from keepset.learning.resnet import resnet18
from keepset.views.augment import Draws, augment
from keepset.views.pretrain import Pretrainer
from keepset.views.simclr import SimCLRSettings, simclr_method
from keepset.views.vicreg import VICRegSettings, vicreg_method

BEST_OF = 5
CUDA = torch.cuda.is_available()
IMAGES, EPOCHS, WIDTH = (5000, 10, 64) if CUDA else (512, 1, 8)
# The one that lets cuDNN try its algorithms comes first: it remembers, for a process, what it took at first.
WAYS = {"compiled": (True, True), "captured": (False, True), "eager": (False, False)}


def main(names: Sequence[str], ways: Sequence[str], parts: bool, profile: Path | None) -> None:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if CUDA else 'CPU'}")
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = images.to("cuda" if CUDA else "cpu")
    for name in names:
        for words in ways:
            compiled, captured = WAYS[words]
            if CUDA or not captured:
                trainer = measured(f"{name}, {words}", trainer_of(name, images, compiled), captured)
                if CUDA and compiled and parts:
                    show_parts(trainer)
                if CUDA and compiled and profile is not None:
                    write_profile(trainer, profile.with_suffix(f".{name}.txt"))
    if CUDA:
        arithmetic()


def trainer_of(name: str, images: Tensor, compiled: bool) -> Pretrainer:
    if name == "simclr":
        contrastive = SimCLRSettings(width=WIDTH, compile=compiled)
        return Pretrainer(images, contrastive, simclr_method(contrastive))
    regularised = VICRegSettings(width=WIDTH, compile=compiled)
    return Pretrainer(images, regularised, vicreg_method(regularised))


def measured(words: str, trainer: Pretrainer, captured: bool) -> Pretrainer:
    trainer.capture = captured
    ready = seconds(trainer.train_epoch)
    best = min(seconds(lambda: repeat(trainer.train_epoch, EPOCHS)) for _ in range(BEST_OF))
    print(f"{words}: {1000 * best / EPOCHS / trainer.steps:.2f} ms a step (first epoch {ready:.0f} s)", flush=True)
    return trainer


def seconds(function: Callable[[], object]) -> float:
    if CUDA:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def repeat(function: Callable[[], object], times: int) -> None:
    for _ in range(times):
        function()


def replayed(function: Callable[[], object], times: int = 100) -> float:
    """Milliseconds of one call of a function, captured as a graph, best of five."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return 1000 * min(seconds(lambda: repeat(graph.replay, times)) for _ in range(BEST_OF)) / times


def show_parts(trainer: Pretrainer) -> None:
    """Augmentation, network and optimiser by themselves; they overlap little, so that they nearly add up to a step."""
    plan = {name: tensor[0] for name, tensor in trainer._plan.items()}
    rows, rate = plan.pop("rows"), plan.pop("rates")
    draws = Draws(**plan)
    mixing = torch.compile(augment, dynamic=False)
    copies = trainer.images[rows].repeat(2, 1, 1, 1)
    print(f"  augmentation: {replayed(lambda: mixing(copies, draws, trainer.mean, trainer.std)):.3f} ms")
    pixels = augment(copies, draws, trainer.mean, trainer.std).contiguous(memory_format=torch.channels_last)

    def loss(batch: Tensor) -> Tensor:
        return trainer.method.loss(trainer.network(batch).float())

    compiled = torch.compile(loss, dynamic=False)

    def forward_and_back() -> None:
        trainer.optimiser.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            value = compiled(pixels)
        value.backward()

    print(f"  network and loss, forward and back: {replayed(forward_and_back):.3f} ms")
    print(f"  LARS: {replayed(lambda: trainer.optimiser.step(rate)):.3f} ms")


def arithmetic() -> None:
    """What the multiplications alone would take at the card's measured matrix rate."""
    counter = FlopCounterMode(display=False)
    network, batch = resnet18(1).cuda(), torch.zeros(8, 3, 32, 32, device="cuda")
    with counter:
        network.features(batch).sum().backward()
    flops = counter.get_total_flops() / 8 * 512
    size = 8192
    left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    rate = 2 * size**3 / (replayed(lambda: left @ left, 20) / 1000)
    print(f"arithmetic of the ResNet, 512 images, forward and back: {flops / 1e12:.2f} TFLOP")
    print(f"matrix rate measured (8192 cubed, bfloat16): {rate / 1e12:.0f} TFLOP/s, so {1000 * flops / rate:.2f} ms")


def write_profile(trainer: Pretrainer, path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        trainer.train_epoch()
        torch.cuda.synchronize()
    table = profiler.key_averages().table(sort_by="cuda_time_total", row_limit=400, max_name_column_width=110)
    path.write_text(str(table))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["simclr", "vicreg"], help="simclr, vicreg or both")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, help="compiled: and captured too")
    parser.add_argument("--parts", action="store_true", help="augmentation, network and optimiser by themselves too")
    parser.add_argument("--profile", type=Path, help="write a table of the kernels beside this file")
    given = parser.parse_args()
    main(given.methods, given.ways, given.parts, given.profile)
