"""Tiles of distances and similarities on the tensor cores of a GPU, written in Triton.

Points lie as `tensor_cores.Split` says: each row of `halves` holds, STEP columns at a time, the large and then the
small float16 part of a centred vector. A tile lies between M rows and N columns, which are given by their indices, so
that parts of the points are never copied. `chosen` holds the numbers of the views in question, and `steps` where the
columns of each view begin and end. What is added up over tiles is left to the caller, or counted in whole numbers: no
result depends on the order in which tiles are computed.
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
    """A Triton function; which numbers come is no reason to compile anew."""
    free = ["row_count", "column_count", "count", "column_tiles", "first", "capacity", "low", "span", "shift", "tie"]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if triton is None:
        return function
    return triton.jit(function, do_not_specialize=[name for name in free if name in names])


@jit
def tile_place(row_count, column_count, M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr):
    """Which tile a program computes: GROUP tiles of rows go through all columns together, so that these are near."""
    row_tiles = tl.cdiv(row_count, M)
    per_group = GROUP * tl.cdiv(column_count, N)
    program = tl.program_id(0)
    top = program // per_group * GROUP
    height = tl.minimum(row_tiles - top, GROUP)
    return top + program % per_group % height, program % per_group // height


@jit
def view_distances(
    halves, norms, copies, steps, count, width, rows, columns, view,
    COPIES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
):  # fmt: skip
    """D of one view. x·y is the product of the large parts and the two mixed ones; with APART these have a sum of their
    own, since a tensor core cuts off the last digits of what it adds to a large sum."""
    inner = tl.arange(0, STEP)
    own = rows.to(tl.int64)[:, None] * width + inner[None, :]
    other = columns.to(tl.int64)[None, :] * width + inner[:, None]
    products = tl.zeros((M, N), dtype=tl.float32)
    mixed = tl.zeros((M, N), dtype=tl.float32)
    for step in range(tl.load(steps + view), tl.load(steps + view + 1)):
        near = halves + step * (2 * STEP)
        large = tl.load(near + own)
        small = tl.load(near + own + STEP)
        large_other = tl.load(near + other)
        small_other = tl.load(near + other + STEP)
        if APART:
            mixed = tl.dot(small, large_other, mixed)
            mixed = tl.dot(large, small_other, mixed)
        else:
            products = tl.dot(small, large_other, products)
            products = tl.dot(large, small_other, products)
        products = tl.dot(large, large_other, products)
    norms += view * count
    copies += view * count
    half = tl.load(norms + rows)[:, None] + tl.load(norms + columns)[None, :]
    if APART:
        products += mixed
    distances = tl.maximum(half - products * UNSCALE, 0.0)
    if COPIES:
        same = tl.load(copies + rows)[:, None] == tl.load(copies + columns)[None, :]
        distances = tl.where(same, 0.0, distances)
    return distances


@jit
def view_similarities(distances, numbers, view, KIND: tl.constexpr):
    """α K of one view, from a table of α, σ and the factor of the power of two; KIND is that of a `Similarity`."""
    bandwidth = tl.load(numbers + 3 * view + 1)
    factor = tl.load(numbers + 3 * view + 2)
    if KIND == "rbf of D":
        values = tl.exp2(distances * distances * factor)
    elif KIND == "laplace of d":
        values = tl.exp2(tl.sqrt_rn(distances * 2.0) * factor)
    elif KIND == "tophat of D":
        values = tl.where(distances <= bandwidth, 1.0, 0.0)
    elif KIND == "tophat of d":
        values = tl.where(tl.sqrt_rn(distances * 2.0) <= bandwidth, 1.0, 0.0)
    else:
        values = tl.exp2(distances * factor)
    return values * tl.load(numbers + 3 * view)


@jit
def similarities(
    halves, norms, copies, steps, numbers, chosen, count, width, rows, columns,
    VIEWS: tl.constexpr, KIND: tl.constexpr, COPIES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
):  # fmt: skip
    """Σ α K over the views."""
    total = tl.zeros((M, N), dtype=tl.float32)
    for place in tl.static_range(VIEWS):
        view = tl.load(chosen + place)
        distances = view_distances(
            halves, norms, copies, steps, count, width, rows, columns, view, COPIES, M, N, STEP, APART, UNSCALE
        )
        total += view_similarities(distances, numbers, view, KIND)
    return total


@jit
def excess_tile(
    halves, norms, copies, steps, numbers, chosen, count, width,
    row_index, row_count, column_index, column_count, base, most, worth, out,
    VIEWS: tl.constexpr, KIND: tl.constexpr, COPIES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """out[tile of columns, row]: Σ over the columns of worth times what of K − base lies between 0 and `most`."""
    row_tile, column_tile = tile_place(row_count, column_count, M, N, GROUP)
    row = row_tile * M + tl.arange(0, M)
    column = column_tile * N + tl.arange(0, N)
    rows = tl.load(row_index + row, mask=row < row_count, other=0)
    columns = tl.load(column_index + column, mask=column < column_count, other=0)
    values = similarities(
        halves, norms, copies, steps, numbers, chosen, count, width, rows, columns,
        VIEWS, KIND, COPIES, M, N, STEP, APART, UNSCALE,
    )  # fmt: skip
    inside = column < column_count
    values = values - tl.load(base + column, mask=inside, other=0.0)[None, :]
    values = tl.minimum(values, tl.load(most + column, mask=inside, other=0.0)[None, :])
    values = tl.maximum(values, 0.0) * tl.load(worth + column, mask=inside, other=0.0)[None, :]
    place = column_tile.to(tl.int64) * row_count + row
    tl.store(out + place, tl.sum(values, axis=1), mask=row < row_count)


@jit
def sums_tile(
    halves, norms, copies, steps, numbers, chosen, count, width, first, column_count, worth, by_row, by_column,
    VIEWS: tl.constexpr, KIND: tl.constexpr, COPIES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """The tiles on and above the diagonal, of `column_count` columns from `first` on.

    by_row[tile of columns, row]: Σ worth K over the columns; by_column[tile of rows, column]: Σ over the rows, of tiles
    above the diagonal. M and N are equal, and `first` is a multiple of them.
    """
    row_tile, column_tile = tile_place(first + column_count, column_count, M, N, GROUP)
    if row_tile * M <= first + column_tile * N:
        rows = row_tile * M + tl.arange(0, M)
        place = column_tile * N + tl.arange(0, N)
        columns = first + place
        row_inside = rows < count
        column_inside = place < column_count
        values = similarities(
            halves, norms, copies, steps, numbers, chosen, count, width,
            tl.where(row_inside, rows, 0), tl.where(column_inside, columns, 0),
            VIEWS, KIND, COPIES, M, N, STEP, APART, UNSCALE,
        )  # fmt: skip
        of_columns = tl.load(worth + columns, mask=column_inside, other=0.0)
        sums = tl.sum(values * of_columns[None, :], axis=1)
        tl.store(by_row + column_tile.to(tl.int64) * (first + column_count) + rows, sums,
                 mask=rows < first + column_count)  # fmt: skip
        if row_tile * M < first + column_tile * N:
            of_rows = tl.load(worth + rows, mask=row_inside, other=0.0)
            sums = tl.sum(values * of_rows[:, None], axis=0)
            tl.store(by_column + row_tile.to(tl.int64) * column_count + place, sums, mask=column_inside)


@jit
def highest_tile(
    halves, norms, copies, steps, numbers, chosen, count, width,
    row_index, row_count, column_count, out,
    VIEWS: tl.constexpr, KIND: tl.constexpr, COPIES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """out[tile of rows, column]: the largest K among the rows, for all columns."""
    row_tile, column_tile = tile_place(row_count, column_count, M, N, GROUP)
    row = row_tile * M + tl.arange(0, M)
    column = column_tile * N + tl.arange(0, N)
    rows = tl.load(row_index + row, mask=row < row_count, other=0)
    values = similarities(
        halves, norms, copies, steps, numbers, chosen, count, width, rows, tl.where(column < column_count, column, 0),
        VIEWS, KIND, COPIES, M, N, STEP, APART, UNSCALE,
    )  # fmt: skip
    values = tl.where((row < row_count)[:, None], values, 0.0)
    tl.store(out + row_tile.to(tl.int64) * column_count + column, tl.max(values, axis=0), mask=column < column_count)


@jit
def distances_tile(
    halves, norms, copies, steps, chosen, count, width,
    row_index, row_count, column_index, column_count, out,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """out[row, column]: D of one view."""
    row_tile, column_tile = tile_place(row_count, column_count, M, N, GROUP)
    row = row_tile * M + tl.arange(0, M)
    column = column_tile * N + tl.arange(0, N)
    rows = tl.load(row_index + row, mask=row < row_count, other=0)
    columns = tl.load(column_index + column, mask=column < column_count, other=0)
    distances = view_distances(
        halves, norms, copies, steps, count, width, rows, columns, tl.load(chosen), True, M, N, STEP, APART, UNSCALE
    )
    place = row.to(tl.int64)[:, None] * column_count + column[None, :]
    tl.store(out + place, distances, mask=(row < row_count)[:, None] & (column < column_count)[None, :])


@jit
def near_row(distances, column_count, reach, found, capacity, out, WIDTH: tl.constexpr):
    """out[row, :]: in any order, those of a row's distances that are no larger than its reach; found[row]: how many."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    values = tl.load(distances + row * column_count + column, mask=column < column_count, other=float("inf"))
    inside = values <= tl.load(reach + row)
    one = inside.to(tl.int32)
    place = tl.cumsum(one, axis=0) - one + tl.atomic_add(found + row, tl.sum(one, axis=0), sem="relaxed")
    tl.store(out + row * capacity + place, values, mask=inside & (place < capacity))


@jit
def count_tile(
    halves, norms, copies, steps, chosen, count, width,
    index, first, column_count, low, span, shift, tie, counts, below, tied, TIES: tl.constexpr, COPIES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr, UNSCALE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Counts the pairs of given points, in tiles on and above the diagonal, by the bits of D as a whole number, which
    grow with D: those below `low`, those equal to `tie`, and in counts[(bits − low) >> shift] the others, up to `span`
    above `low`."""
    row_tile, column_tile = tile_place(first + column_count, column_count, M, N, GROUP)
    if row_tile * M <= first + column_tile * N:
        row = row_tile * M + tl.arange(0, M)
        place = column_tile * N + tl.arange(0, N)
        column = first + place
        rows = tl.load(index + row, mask=row < first + column_count, other=0)
        columns = tl.load(index + column, mask=place < column_count, other=0)
        distances = view_distances(
            halves,
            norms,
            copies,
            steps,
            count,
            width,
            rows,
            columns,
            tl.load(chosen),
            COPIES,
            M,
            N,
            STEP,
            APART,
            UNSCALE,
        )
        bits = distances.to(tl.int32, bitcast=True)
        pair = row[:, None] < tl.where(place < column_count, column, 0)[None, :]
        smaller = pair & (bits < low)
        tl.atomic_add(below, tl.sum(tl.sum(smaller.to(tl.int32), axis=1), axis=0).to(tl.int64), sem="relaxed")
        if TIES:
            equal = pair & (bits == tie)
            tl.atomic_add(tied, tl.sum(tl.sum(equal.to(tl.int32), axis=1), axis=0).to(tl.int64), sem="relaxed")
            pair = pair & (bits != tie)
        beyond = (bits - low).to(tl.uint32, bitcast=True)  # of those below it is a large number
        one = tl.full((M, N), 1, dtype=tl.int64)
        tl.atomic_add(counts + (beyond >> shift), one, mask=pair & (beyond < span), sem="relaxed")
