"""How far up STAR's ascent leads, by where its noise is: KL(p ‖ q) at the worst weights, of batches of ten.

python bench/ascent.py [--data digits] [--width 16] [--steps 150 500 1000]

A ResNet-18 learns the first episode; after so many steps, the ascent is taken on the same thirty batches from noise in
all weights and in the head alone, in the limit of ever smaller noise, each tensor moved by a hundredth of its length.
Beside it a random move of the same length. The mean, and its standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from keepset import data
from keepset.experiment.config import make_config
from keepset.learning import Batch, LearnerSettings
from keepset.learning.ascent import (
    Scene,
    ascent_at,
    divergence,
    fresh,
    lengths,
    log_probabilities,
    moved,
    rising_of,
    slopes_of,
    worst_of,
)
from keepset.learning.augment import normalise
from keepset.learning.resnet import resnet18
from keepset.learning.star import random_directions
from keepset.learning.step import cross_entropy, detached, leaves
from keepset.learning.tangents import derivative

BATCHES, SIZE, GAMMA = 30, 10, 0.01


def climbed(model: nn.Module, batch: Batch, seen: Tensor, seed: int) -> dict[str, float] | None:
    """KL at the worst weights; None where fewer than two images are classified correctly."""
    weights = detached(leaves(model))
    every, head = (random_directions(model, noise, torch.Generator().manual_seed(seed)) for noise in (1.0, 0.0))
    sizes = lengths([weights[name] for name in every])
    scaled = {name: size * every[name] for name, size in zip(every, sizes, strict=True)}
    here = fresh(weights)
    level, log_p, correct = rising_of(*derivative(model, here, scaled, batch.images), batch, seen)
    if int(correct.sum()) < 2:
        return None
    ways = {
        "all weights": slopes_of(level, here),
        "the head": ascent_at(Scene(model, batch, seen, head, LearnerSettings(), False), weights)[2],
    }
    places = {
        name: worst_of(weights, uphill, sizes, lengths(list(uphill.values())), GAMMA, torch.float32)
        for name, uphill in ways.items()
    }
    places["a random move"] = moved(weights, every, sizes, GAMMA)
    return {
        name: float(divergence(log_p, log_probabilities(model, at, batch.images, seen, False), correct))
        for name, at in places.items()
    }


def main(name: str, width: int, moments: Sequence[int]) -> None:
    config = make_config(flags={"device": "cpu", "data": {"name": name}})
    dataset = data.load(config.data)
    episode = data.split(dataset, config.data)[0]
    images, labels = normalise(episode.train_images, dataset.mean, dataset.std), episode.train_labels
    seen = torch.zeros(dataset.classes, dtype=torch.bool)
    seen[list(episode.classes)] = True
    model = resnet18(dataset.classes, width, images.shape[1], generator=0).train()
    optimiser = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=2e-4)
    source = torch.Generator().manual_seed(0)
    print(f"torch {torch.__version__}, {name}, ResNet-18 of width {width}")
    print("| steps | noise in | KL | ± |\n| ---: | --- | ---: | ---: |")
    for step in range(1, max(moments) + 1):
        rows = torch.randperm(len(images), generator=source)[: 2 * SIZE]
        optimiser.zero_grad()
        cross_entropy(model(images[rows]), labels[rows], seen).backward()
        optimiser.step()
        if step in moments:
            batches = [torch.randperm(len(images), generator=source)[:SIZE] for _ in range(BATCHES)]
            found = [climbed(model, Batch(images[rows], labels[rows]), seen, seed) for seed, rows in enumerate(batches)]
            kept = [each for each in found if each is not None]
            for way in kept[0] if kept else ():
                values = torch.tensor([each[way] for each in kept])
                print(f"| {step} | {way} | {values.mean():.4f} | {values.std() / len(values) ** 0.5:.4f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--steps", nargs="+", type=int, default=[150, 500, 1000])
    given = parser.parse_args()
    main(given.data, given.width, given.steps)
