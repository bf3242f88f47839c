"""3×3 convolutions of several runs at once, each run with weights of its own, on the tensor cores of a GPU, in Triton.

All lie channels last: maps (runs, images, height, width, channels), weights (runs, kept, 3, 3, channels). A program
computes one tile of one run, and adds up in an order that depends on the shape of a single run alone.
"""

# mypy: ignore-errors

from __future__ import annotations

import importlib

try:  # `import triton` would say that everybody needs it
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
except ImportError:
    triton = tl = None


def jit(function):
    return function if triton is None else triton.jit(function)


@jit
def maps_tile(
    maps, weight, out,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, KEPT: tl.constexpr,
    STRIDE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """out[p, k] = Σ maps[p moved by a tap, c] · weight[k, tap, c]; HEIGHT and WIDTH are those of what goes in."""
    run = tl.program_id(2).to(tl.int64)
    down: tl.constexpr = HEIGHT // STRIDE
    across: tl.constexpr = WIDTH // STRIDE
    blocks: tl.constexpr = CHANNELS // STEP
    maps += run * (IMAGES * HEIGHT * WIDTH * CHANNELS)
    weight += run * (KEPT * 9 * CHANNELS)
    out += run * (IMAGES * down * across * KEPT)
    place = tl.program_id(0) * M + tl.arange(0, M)
    kept = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, STEP)
    image = place // (down * across)
    top = place // across % down * STRIDE - 1
    left = place % across * STRIDE - 1
    inside = place < IMAGES * down * across
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(9 * blocks):
        tap = step // blocks
        first = step % blocks * STEP
        row = top + tap // 3
        column = left + tap % 3
        there = inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        where = ((image * HEIGHT + row) * WIDTH + column) * CHANNELS + first
        values = tl.load(maps + where[:, None] + inner[None, :], mask=there[:, None], other=0.0)
        factors = tl.load(weight + (kept * (9 * CHANNELS) + tap * CHANNELS + first)[None, :] + inner[:, None])
        total = tl.dot(values, factors, total)
    tl.store(out + place[:, None] * KEPT + kept[None, :], total.to(out.dtype.element_ty), mask=inside[:, None])


@jit
def back_tile(
    slopes, weight, out,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, KEPT: tl.constexpr,
    STRIDE: tl.constexpr, ODD_ROW: tl.constexpr, ODD_COLUMN: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The gradient of the maps: out[q, c] = Σ slopes[p, k] · weight[k, tap, c] over all p that a tap leads to q from.

    With a stride of 2 those q whose row, and whose column, is even, or odd: each kind has taps of its own.
    """
    run = tl.program_id(2).to(tl.int64)
    down: tl.constexpr = HEIGHT // STRIDE
    across: tl.constexpr = WIDTH // STRIDE
    blocks: tl.constexpr = KEPT // STEP
    slopes += run * (IMAGES * down * across * KEPT)
    weight += run * (KEPT * 9 * CHANNELS)
    out += run * (IMAGES * HEIGHT * WIDTH * CHANNELS)
    place = tl.program_id(0) * M + tl.arange(0, M)
    channel = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, STEP)
    image = place // (down * across)
    top = place // across % down
    left = place % across
    inside = place < IMAGES * down * across
    wide: tl.constexpr = 3 if STRIDE == 1 else 1 + ODD_COLUMN
    taps: tl.constexpr = 9 if STRIDE == 1 else (1 + ODD_ROW) * wide
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(taps * blocks):
        turn = step // blocks
        first = step % blocks * STEP
        if STRIDE == 1:
            tap_row = turn // 3
            tap_column = turn % 3
            row = top + 1 - tap_row
            column = left + 1 - tap_column
        else:  # an even row is reached by the middle tap; an odd one by the first, from below, and the last
            tap_row = 1 - ODD_ROW + turn // wide * 2
            tap_column = 1 - ODD_COLUMN + turn % wide * 2
            row = top + (ODD_ROW + 1 - tap_row) // 2
            column = left + (ODD_COLUMN + 1 - tap_column) // 2
        there = inside & (row >= 0) & (row < down) & (column >= 0) & (column < across)
        where = ((image * down + row) * across + column) * KEPT + first
        values = tl.load(slopes + where[:, None] + inner[None, :], mask=there[:, None], other=0.0)
        tap = tap_row * 3 + tap_column
        factors = tl.load(weight + ((first + inner) * (9 * CHANNELS) + tap * CHANNELS)[:, None] + channel[None, :])
        total = tl.dot(values, factors, total)
    pixel = (image * HEIGHT + top * STRIDE + ODD_ROW) * WIDTH + left * STRIDE + ODD_COLUMN
    tl.store(out + pixel[:, None] * CHANNELS + channel[None, :], total.to(out.dtype.element_ty), mask=inside[:, None])


@jit
def weight_tile(
    maps, slopes, out, runs,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, KEPT: tl.constexpr,
    STRIDE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """The gradient of the weight, in SPLIT parts to be added up: out[part, k, tap, c] = Σ slopes[p, k] · maps[…, c]."""
    part = tl.program_id(2) % SPLIT
    run = (tl.program_id(2) // SPLIT).to(tl.int64)
    down: tl.constexpr = HEIGHT // STRIDE
    across: tl.constexpr = WIDTH // STRIDE
    tiles: tl.constexpr = CHANNELS // N
    places: tl.constexpr = IMAGES * down * across
    own: tl.constexpr = (places + STEP * SPLIT - 1) // (STEP * SPLIT) * STEP  # places of a part
    maps += run * (IMAGES * HEIGHT * WIDTH * CHANNELS)
    slopes += run * (places * KEPT)
    kept = tl.program_id(0) * M + tl.arange(0, M)
    tap = tl.program_id(1) // tiles
    channel = tl.program_id(1) % tiles * N + tl.arange(0, N)
    inner = tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(own // STEP):
        place = part * own + step * STEP + inner
        image = place // (down * across)
        row = place // across % down * STRIDE - 1 + tap // 3
        column = place % across * STRIDE - 1 + tap % 3
        inside = place < places
        there = inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        where = ((image * HEIGHT + row) * WIDTH + column) * CHANNELS
        values = tl.load(maps + where[:, None] + channel[None, :], mask=there[:, None], other=0.0)
        factors = tl.load(slopes + (place * KEPT)[:, None] + kept[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(tl.trans(factors), values, total)
    out += (part.to(tl.int64) * runs + run) * (KEPT * 9 * CHANNELS)
    tl.store(out + (kept * (9 * CHANNELS))[:, None] + (tap * CHANNELS + channel)[None, :], total)
