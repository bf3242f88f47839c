"""Many runs side by side: how long a step of a run takes, and what the ways of running it buy.

python bench/fleet.py [--learners er er-ace er-ace-star] [--widths 64 20] [--runs 1 2 4 8 16]
    [--ways usual eager captured compiled stacked] [--size 32] [--profile FILE]
python bench/fleet.py --evaluation [--widths 64 20]                 test images a second, by the size of a batch

On a GPU, in one process, a step of 10 new and 10 memory images (STAR takes 10 more): the loop as it is
usually written (a forward for each batch, draws in the loop, torch's SGD as it comes, the loss read back), our own step
run eagerly, captured, and compiled and captured, by one run and by several side by side; and stacked, eight runs in one
step, which STAR cannot be, nor width 20. On a CPU: the plain loop against itself with the data path of a torch
DataLoader. The pixels are random: time does not depend on them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from keepset import embed
from keepset.learning import LearnerSettings, fleet, learner
from keepset.learning.augment import augment, draw_crops, normalise
from keepset.learning.resnet import resnet18
from keepset.learning.stack import PLACES, Stacks, check_stackable
from keepset.learning.step import Batch
from keepset.learning.trainer import Engine, Episode, Material, Trainer, TrainSettings

BEST_OF = 5
CLASSES = 20
CUDA = torch.cuda.is_available()
IMAGES, STEPS = (2000, 50) if CUDA else (400, 20)
FEW = 10  # steps of a loop that launches its kernels one by one
EAGER, CAPTURED, COMPILED = Engine(False, False), Engine(True, False), Engine(True, True)
WAYS = {"eager": EAGER, "captured": CAPTURED, "compiled": COMPILED, "stacked": COMPILED}
USUAL, STACKED, SEVERAL = "usual", "stacked", ("captured", "compiled", "stacked")
EVALUATED = (64, 256, 1024, 2500, 10_000)


def material(size: int = 32) -> Material:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (IMAGES, 3, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.arange(IMAGES) % CLASSES
    device = "cuda" if CUDA else "cpu"
    mean, std = torch.full((3,), 0.5, device=device), torch.full((3,), 0.25, device=device)
    return Material(images.to(device), labels.to(device), mean, std, 4, True)


def trainer_of(name: str, width: int, engine: Engine, data: Material, seed: int, stacked: bool = False) -> Trainer:
    """A run in its second episode."""
    model = resnet18(CLASSES, width, generator=seed).to(data.images.device)
    trainer = Trainer(model, learner(name), TrainSettings(stacked=stacked), data, engine)
    rows = torch.arange(IMAGES)
    seen = torch.ones(CLASSES, dtype=torch.bool, device=data.images.device)
    trainer.begin(Episode(rows[: 10 * STEPS], rows[10 * STEPS :], seen, (seed,)))
    return trainer


def seconds_a_run_step(trainers: Sequence[Trainer], steps: int = STEPS) -> float:
    """The best of five, all of them advancing together; their epochs must have begun."""
    return 1 / max(fleet.run_steps_a_second(trainers, steps) for _ in range(BEST_OF))


def seconds_a_stacked_step(trainers: Sequence[Trainer], stacks: Stacks) -> float:
    """The same for runs that are stacked."""
    groups, _ = stacks.split(trainers)
    members = [(group.stack(), group.trainers) for group in groups]
    best = float("inf")
    for _ in range(BEST_OF):
        for stack, inside in members:
            fleet.begin(stack, inside)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            for stack, _ in members:
                with fleet.on_stream(stack):
                    stack.advance()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best / STEPS / len(trainers)


# ---------------------------------------------------------------- a GPU


def on_a_gpu(
    names: Sequence[str],
    widths: Sequence[int],
    numbers: Sequence[int],
    ways: Sequence[str],
    size: int,
    profile: Path | None,
) -> None:
    rate = matrix_rate()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, matrix rate {rate / 1e12:.0f} TFLOP/s")
    print("| learner | width | how | runs | ms a run-step | images a second | of the rate | MiB a run | times usual |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    data = material(size)
    for width in widths:
        for name in names:
            work, usual = flops(name, width, data), float("nan")
            for how in [how for how in ways if how != STACKED or can_stack(name, width)]:
                for runs, seconds, memory in measured(
                    name, width, how, numbers if how in SEVERAL else [1], data, profile
                ):
                    usual = seconds if how == USUAL else usual
                    images = (10 + sum(learner(name).draws)) / seconds
                    print(
                        f"| {name} | {width} | {how} | {runs} | {1000 * seconds:.3f} | {images:,.0f} | "
                        f"{100 * work / seconds / rate:.1f} % | {memory / 2**20:.0f} | {usual / seconds:.1f} |",
                        flush=True,
                    )


def can_stack(name: str, width: int) -> bool:
    try:
        check_stackable(learner(name), resnet18(CLASSES, width), 32, 10, "cuda")
    except ValueError:
        return False
    return True


def measured(
    name: str, width: int, how: str, numbers: Sequence[int], data: Material, profile: Path | None
) -> Iterator[tuple[int, float, float]]:
    """Of so many runs side by side, each of the numbers: seconds a run-step, and bytes a run."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    if how == USUAL:
        yield 1, usual_loop(name, width, data), torch.cuda.memory_reserved() - before
        return
    trainers = [trainer_of(name, width, WAYS[how], data, seed, how == STACKED) for seed in range(max(numbers))]
    if how == STACKED:
        stacks = Stacks()
        times = [seconds_a_stacked_step(trainers[:number], stacks) for number in numbers]
        memory = (torch.cuda.memory_reserved() - before) / len(trainers)
        yield from ((number, seconds, memory) for number, seconds in zip(numbers, times, strict=True))
        if profile is not None:
            write_profile(
                lambda: fleet.train_epoch(trainers[:PLACES], stacks), profile.with_suffix(f".{name}.stacked.txt")
            )
        return
    for trainer in trainers:
        fleet.begin(trainer)
    torch.cuda.synchronize()
    memory = (torch.cuda.memory_reserved() - before) / len(trainers)
    for number in numbers:
        yield number, seconds_a_run_step(trainers[:number], STEPS if how in SEVERAL else FEW), memory
    if profile is not None and how == "compiled":
        write_profile(trainers[0].train_epoch, profile.with_suffix(f".{name}.{width}.txt"))


def evaluation(width: int) -> None:
    """Images a second through a network as runs evaluate it, by the size of a batch."""
    data = material()
    model = resnet18(CLASSES, width, generator=0).to(data.images.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = data.images[torch.arange(10_000) % IMAGES]

    def look(size: int) -> None:
        embed(lambda batch: model(normalise(batch, data.mean, data.std)).float(), images, size, model=model)
        torch.cuda.synchronize()

    print("| width | images a batch | 10,000 images, ms | images a second |\n| ---: | ---: | ---: | ---: |")
    for size in EVALUATED:
        look(size)
        best = float("inf")
        for _ in range(BEST_OF):
            begin = time.perf_counter()
            look(size)
            best = min(best, time.perf_counter() - begin)
        print(f"| {width} | {size} | {1000 * best:.0f} | {10_000 / best:,.0f} |", flush=True)


class Network(nn.Module):
    """Not known as one of ours, so that learners have a forward for each batch."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images)
        return logits


def usual_loop(name: str, width: int, data: Material) -> float:
    """Seconds a step of the loop as it is usually written, the best of five; STAR with three forwards."""
    model = Network(resnet18(CLASSES, width, generator=0)).to(data.images.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    chosen, generator = learner(name, LearnerSettings(star_noise=1e-3)), torch.Generator().manual_seed(0)
    gradients = chosen.prepare(model, generator)
    optimiser = torch.optim.SGD(model.parameters(), chosen.rate, momentum=0.9, weight_decay=2e-4, nesterov=True)
    seen = torch.ones(CLASSES, dtype=torch.bool, device=data.images.device)

    def batch(first: int, last: int, count: int) -> Batch:
        rows = torch.randint(first, last, (count,), generator=generator)
        crops = draw_crops(count, data.padding, data.flip, generator)
        return Batch(augment(data.images[rows], crops, data.padding, data.mean, data.std), data.labels[rows])

    def step() -> float:
        new, memory = batch(0, 10 * STEPS, 10), [batch(10 * STEPS, IMAGES, count) for count in chosen.draws]
        optimiser.zero_grad()
        with torch.autocast(data.images.device.type, torch.bfloat16):
            loss = gradients(model, new, memory, seen)
        optimiser.step()
        return loss.item()

    for _ in range(5):
        step()
    best = float("inf")
    for _ in range(BEST_OF):
        begin = time.perf_counter()
        for _ in range(FEW):
            step()
        best = min(best, (time.perf_counter() - begin) / FEW)
    return best


def matrix_rate(size: int = 8192) -> float:
    """Operations a second of a large bfloat16 product."""
    left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(BEST_OF):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            left @ left
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 20)
    return 2 * size**3 / best


def flops(name: str, width: int, data: Material) -> float:
    """Multiplications and additions of a step, counted by torch."""
    trainer = trainer_of(name, width, EAGER, data, 0)
    trainer.begin_epoch()
    counter = FlopCounterMode(display=False)
    with counter:
        trainer.advance()
    return float(counter.get_total_flops())


def write_profile(train_epoch: Callable[[], object], path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        train_epoch()
        torch.cuda.synchronize()
    table = profiler.key_averages().table(sort_by="cuda_time_total", row_limit=300, max_name_column_width=110)
    path.write_text(str(table))


# ---------------------------------------------------------------- a CPU


class Files(Dataset[Any]):
    """The usual data path: one image at a time, augmented by itself, put together by the loader."""

    def __init__(self, data: Material, rows: Tensor) -> None:
        self.data, self.rows = data, rows
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        row = int(self.rows[place])
        crop = draw_crops(1, self.data.padding, self.data.flip, self.generator)
        image = augment(self.data.images[row : row + 1], crop, self.data.padding, self.data.mean, self.data.std)
        return image[0], int(self.data.labels[row])


def on_a_cpu(names: Sequence[str]) -> None:
    print(f"torch {torch.__version__}, CPU, {torch.get_num_threads()} threads, ResNet-18 of width 8")
    print("| learner | data path | ms a step |\n| --- | --- | ---: |")
    data = material()
    for name in names:
        trainer = trainer_of(name, 8, EAGER, data, 0)
        fleet.begin(trainer)
        print(f"| {name} | tensors in place | {1000 * seconds_a_run_step([trainer]):.1f} |")
        best = min(with_loaders(trainer_of(name, 8, EAGER, data, 0)) for _ in range(BEST_OF))
        print(f"| {name} | torch DataLoader | {1000 * best:.1f} |", flush=True)


def with_loaders(trainer: Trainer) -> float:
    """Seconds a step, with a loader for the new images and one for each draw from the memory."""
    episode = trainer.episode
    sources = [episode.new, *[episode.memory] * len(trainer.learner.draws)]
    loaders = [DataLoader(Files(trainer.material, rows), batch_size=10, shuffle=True) for rows in sources]
    gradients = trainer.learner.prepare(trainer.model, torch.Generator().manual_seed(0))
    trainer.model.train()
    begin, steps = time.perf_counter(), 0
    for batches in zip(*loaders, strict=False):
        new, *memory = (Batch(images, labels) for images, labels in batches)
        trainer.optimiser.zero_grad(set_to_none=True)
        gradients(trainer.model, new, memory, episode.seen)
        trainer.optimiser.step()
        steps += 1
    return (time.perf_counter() - begin) / steps


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", nargs="+", default=["er", "er-ace", "er-ace-star"])
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 20])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--ways", nargs="+", default=[USUAL, *WAYS], choices=[USUAL, *WAYS])
    parser.add_argument("--size", type=int, default=32, help="pixels on a side of an image")
    parser.add_argument("--profile", type=Path, help="write tables of the kernels beside this file")
    parser.add_argument("--evaluation", action="store_true", help="instead: how fast test images go through a network")
    given = parser.parse_args()
    if CUDA and given.evaluation:
        for width in given.widths:
            evaluation(width)
    elif CUDA:
        on_a_gpu(given.learners, given.widths, given.runs, given.ways, given.size, given.profile)
    else:
        on_a_cpu(given.learners)
