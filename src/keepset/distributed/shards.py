"""Views that lie in files: how large they are is known at once, and rows are read when they are wanted."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..files import read_array

Rows = np.ndarray[Any, Any]
Source = Rows | str | Path | Sequence[Rows | str | Path]

ENDINGS = (".npy", ".parquet")
PARQUET_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
BATCH = 65_536  # rows of a parquet file that are decoded together


class Shard(Protocol):
    """Some rows of a view. It holds no open file, so that it can be sent to another process."""

    @property
    def label(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...

    def take(self, rows: Rows) -> Rows:
        """(r, d) the rows of these numbers, which ascend."""


class View:
    """The rows of one view: one array or file, or several, one after the other.

    >>> import numpy
    >>> view = View("pixels", [numpy.zeros((2, 3)), numpy.ones((4, 3))])
    >>> len(view), view.columns, view.range(1, 3).tolist()
    (6, 3, [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self.shards = [_checked(shard) for shard in _shards(f"sources[{name!r}]", source)]
        first = self.shards[0]
        for shard in self.shards:
            if shard.shape[1] != first.shape[1]:
                raise ValueError(
                    f"the shards of sources[{name!r}] must have equally many columns, but {first.label} has "
                    f"{first.shape[1]} and {shard.label} has {shard.shape[1]}; make one of them again"
                )
        self.columns = first.shape[1]
        self.dtype = np.result_type(*(shard.dtype for shard in self.shards))
        self.ends = np.cumsum([shard.shape[0] for shard in self.shards])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def range(self, first: int, stop: int) -> Rows:
        """(r, d) the rows first, …, stop − 1."""
        return self.rows(np.arange(first, stop))

    def rows(self, numbers: Rows) -> Rows:
        """(r, d) the rows of these numbers, which ascend."""
        found = np.empty((len(numbers), self.columns), self.dtype)
        edges = [0, *np.searchsorted(numbers, self.ends).tolist()]
        starts = [0, *self.ends.tolist()]
        for position, shard in enumerate(self.shards):
            here = slice(edges[position], edges[position + 1])
            if here.stop > here.start:
                found[here] = shard.take(numbers[here] - starts[position])
        return found


def open_views(sources: Mapping[str, Source]) -> dict[str, View]:
    """View name -> its rows. Headers are read and checked, and nothing else."""
    if not isinstance(sources, Mapping) or not sources:
        raise ValueError(f"sources must be a mapping view name -> array, file or list of files, got {sources!r:.100}")
    for name in sources:
        if not isinstance(name, str):
            raise ValueError(f"sources must have strings for names, got {name!r}")
    views = {name: View(name, source) for name, source in sources.items()}
    first, reference = next(iter(views.items()))
    for name, view in views.items():
        if len(view) != len(reference):
            raise ValueError(
                f"views must have equally many rows, but {first!r} has {len(reference)} ({_sizes(reference)}) and "
                f"{name!r} has {len(view)} ({_sizes(view)}); name the shards of every view in full"
            )
    return views


def _sizes(view: View) -> str:
    """`a.npy 200, b.npy 100`, the first few of them."""
    told = [f"{shard.label} {shard.shape[0]}" for shard in view.shards[:3]]
    return ", ".join(told) + (f" and {len(view.shards) - 3} more" if len(view.shards) > 3 else "")


# ---------------------------------------------------------------- from what was passed to shards


def _shards(argument: str, source: object) -> list[Shard]:
    if isinstance(source, (np.ndarray, str, Path)):
        return [_shard(argument, source)]
    if not isinstance(source, Sequence):
        raise ValueError(_not_a_source(argument, source))
    if not source:
        raise ValueError(f"{argument} must name at least one file, got an empty list")
    return [_shard(f"{argument}[{position}]", each) for position, each in enumerate(source)]


def _shard(argument: str, source: object) -> Shard:
    if isinstance(source, np.ndarray):
        return _mapped(source) or InMemory(argument, source)
    if not isinstance(source, (str, Path)):
        raise ValueError(_not_a_source(argument, source))
    path = Path(source).absolute()
    if path.suffix not in ENDINGS:
        raise ValueError(f"{argument} must end in {' or '.join(ENDINGS)}, got {source}; save it as one of these")
    if path.suffix == ".parquet":
        return ParquetFile(path)
    array = read_array(path)[1]
    return (_mapped(array) if isinstance(array, np.ndarray) else None) or InMemory(str(path), np.asarray(array))


def _not_a_source(argument: str, source: object) -> str:
    got = type(source).__name__
    return f"{argument} must be a numpy array, a file {' or '.join(ENDINGS)}, or a list of these, got {got}"


def _mapped(array: Rows) -> Shard | None:
    """A map of a file as that file; None for what cannot be mapped again: parts of maps, and changes of one's own."""
    if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap):
        return None
    if array.filename is None or array.mode == "c":
        return None
    path = Path(array.filename).absolute()
    return MappedFile(path, array.shape, array.dtype, array.offset, "C" if array.flags.c_contiguous else "F")


def _checked(shard: Shard) -> Shard:
    """The shard, if it is a table of floats."""
    shape = shard.shape
    if shard.dtype.kind != "f" or shard.dtype.itemsize > 8:
        raise ValueError(
            f"{shard.label} must hold float16, float32 or float64, got {shard.dtype}; convert it to float32 first"
        )
    if len(shape) != 2:
        raise ValueError(f"{shard.label} must have shape (points, columns), got {shape}; reshape it first")
    if 0 in shape:
        raise ValueError(f"{shard.label} must have at least one point and one column, got shape {shape}; leave it out")
    return shard


# ---------------------------------------------------------------- the kinds of shards


@dataclass(frozen=True)
class InMemory:
    """An array as it was passed."""

    label: str
    array: Rows

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    def take(self, rows: Rows) -> Rows:
        return np.asarray(self.array[rows])


@dataclass(frozen=True)
class MappedFile:
    """An array in a file; of what is read, only the pages of its rows are touched."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    order: Any

    @property
    def label(self) -> str:
        return str(self.path)

    def take(self, rows: Rows) -> Rows:
        try:
            array = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)
        except (OSError, ValueError) as error:
            raise ValueError(_unreadable(self.path, error)) from None
        return np.asarray(array[rows])


class ParquetFile:
    """Either one column of lists of floats, all of one length, or one column of floats for each dimension."""

    def __init__(self, path: Path) -> None:
        self.path, self.label = path, str(path)
        with _opened(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
            groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        self.groups = [group.num_rows for group in groups]
        self.lists = len(schema) == 1 and _is_list(schema.types[0])
        kinds = [str(schema.types[0].value_type)] if self.lists else [str(kind) for kind in schema.types]
        if not kinds or any(kind not in PARQUET_FLOATS for kind in kinds):
            got = ", ".join(f"{name} ({kind})" for name, kind in zip(schema.names[:5], schema.types[:5], strict=True))
            raise ValueError(
                f"{path} must hold a column of floats for each dimension, or one column of lists of floats, and no "
                f"other, got {got or 'no column'}{' and more' if len(schema) > 5 else ''}; write the view alone to it"
            )
        self.dtype: np.dtype[Any] = np.result_type(*(PARQUET_FLOATS[kind] for kind in kinds))
        values = sum(group.column(0).num_values for group in groups)
        width = values // max(metadata.num_rows, 1) if self.lists else len(kinds)
        if self.lists and width * metadata.num_rows != values:
            raise ValueError(
                f"{path} has rows without a list, or with one of another length; drop or repair them first"
            )
        self.shape: tuple[int, ...] = (metadata.num_rows, width)

    def take(self, rows: Rows) -> Rows:
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        with _opened(self.path) as file:
            for first, batch in self._batches(file, rows):
                here = slice(*np.searchsorted(rows, [first, first + len(batch)]))
                if here.stop > here.start:
                    found[here] = self._numbers(batch, first)[rows[here] - first]
        return found

    def _batches(self, file: Any, rows: Rows) -> Iterator[tuple[int, Any]]:
        """What the row groups with wanted rows hold, a batch at a time, each with the number of its first row."""
        end = 0
        for group, count in enumerate(self.groups):
            first, end = end, end + count
            if np.searchsorted(rows, first) == np.searchsorted(rows, end):
                continue
            for batch in file.iter_batches(BATCH, row_groups=[group]):
                yield first, batch
                first += len(batch)

    def _numbers(self, batch: Any, first: int) -> Rows:
        """(r, d) the numbers of a batch, with none missing."""
        for column in batch.columns:
            if column.null_count:
                row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise ValueError(f"{self.path} has a missing value in its row {row}; drop or repair such rows first")
        if not self.lists:
            columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            return np.stack(columns, 1)
        column = batch.column(0)
        lengths = column.value_lengths().to_numpy() if hasattr(column, "value_lengths") else np.array([self.shape[1]])
        values = column.flatten()
        if (lengths != self.shape[1]).any() or values.null_count:
            raise ValueError(
                f"{self.path} must have {self.shape[1]} numbers in every row, as on average, but rows {first}.."
                f"{first + len(batch) - 1} have longer, shorter or incomplete lists; drop or repair such rows first"
            )
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, self.shape[1])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path} needs pyarrow; pip install keepset[parquet]") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(_unreadable(path, error)) from None


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _unreadable(path: Path, error: Exception) -> str:
    if not path.is_file():
        return f"no such file: {path}; on a cluster it must lie where every machine sees it under this path"
    return f"{path} is damaged or not readable ({error}); make it again"
