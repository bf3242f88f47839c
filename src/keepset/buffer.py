"""The replay buffer: stores what it is told, in the order it was picked. It knows nothing of selectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .checks import Label, check_range, plain_label, read_generator, read_labels
from .files import write_atomically

Data = Any  # a tensor, or a mapping name -> tensor: whatever was stored. A union would burden every caller
Labels = Any  # an int64 tensor, or a list of strings
ONE = ""  # the name of the only tensor, where data is not a mapping
LARGEST = 2**31


class Buffer:
    """Exemplars by class, each class in the order it was picked, so that a class shrinks by keeping its prefix.

    capacity: the whole is shared among the classes seen so far: quotas shrink as classes come, the total never grows.
    per_class: every class keeps so many, whatever comes: the total grows. One of the two must be given.

    >>> buffer = Buffer(capacity=4)
    >>> rows = torch.arange(6)
    >>> buffer.update(rows, ["cat", "cat", "cat", "dog", "dog", "dog"], {"cat": [2, 0, 1], "dog": [5, 3]})
    >>> buffer["cat"], buffer["dog"]
    (tensor([2, 0]), tensor([5, 3]))
    """

    def __init__(self, capacity: int | None = None, *, per_class: int | None = None) -> None:
        if (capacity is None) == (per_class is None):
            raise ValueError(
                "give one of capacity= (the whole, shared among the classes) and per_class= (fixed for each class), "
                f"got capacity={capacity!r} and per_class={per_class!r}"
            )
        self.capacity = _size("capacity", capacity)
        self.per_class = _size("per_class", per_class)
        self._data: dict[str, Tensor] = {}  # all classes one after the other, so that sampling is indexing
        self._counts: dict[Label, int] = {}  # how many rows each class has there, earliest class first
        self._generator = torch.Generator().manual_seed(0)

    # ------------------------------------------------------------ what is there

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __getitem__(self, label: Label) -> Data:
        """What is held of one class, in pick order."""
        label = plain_label(label)
        if label not in self._counts:
            raise KeyError(f"class {label!r} has not been seen; seen are {self.classes}")
        return _plain({name: tensor[self._places([label])] for name, tensor in self._data.items()})

    def __repr__(self) -> str:
        return f"<Buffer: {len(self)} exemplars of {len(self.classes)} classes, {self._rule()}>"

    @property
    def classes(self) -> list[Label]:
        """The classes seen, earliest first; also those that hold nothing."""
        return list(self._counts)

    def contents(self) -> tuple[Data, Labels]:
        """Everything held and its labels, class by class in the order they came."""
        return self._take(self._places(self.classes))

    def describe(self) -> str:
        """The rule, the quota, what is held and how many bytes it takes, in words."""
        size = sum(tensor.nbytes for tensor in self._data.values())
        lines = [
            f"rule   {self._rule()}",
            f"quota  {_spread(self.quota().values())}, {len(self.classes)} classes seen",
            f"held   {_spread(self._counts.values())}, {len(self)} exemplars in all, {size:,} bytes",
        ]
        return "\n".join(lines)

    def _rule(self) -> str:
        if self.per_class is not None:
            return f"per_class={self.per_class}: a fixed quota for every class, the total grows with the classes"
        return f"capacity={self.capacity}: shared among the classes seen, quotas shrink as classes come"

    def _places(self, classes: Iterable[Label]) -> Tensor:
        """The rows where these classes lie."""
        ends = dict(zip(self._counts, np.cumsum(list(self._counts.values())).tolist(), strict=True))
        ranges = [torch.arange(ends[label] - self._counts[label], ends[label]) for label in classes]
        return torch.cat(ranges) if ranges else torch.empty(0, dtype=torch.int64)

    # ------------------------------------------------------------ quota and update

    def quota(self, labels: Any = None) -> dict[Label, int]:
        """Class -> how many it may keep once the classes of `labels` have been seen too.

        With labels: for their classes alone, ready to be a budget. Without: for every class seen. What cannot be
        shared evenly goes to the earliest classes, one each.
        """
        new: list[Label] = [] if labels is None else np.unique(read_labels(labels)).tolist()
        every = self._quotas(new)
        return every if labels is None else {label: every[label] for label in new}

    def _quotas(self, new: Iterable[Label]) -> dict[Label, int]:
        """For the classes seen and, after them, the new ones in ascending order."""
        unseen = [label for label in new if label not in self._counts]
        read_labels([*self.classes, *unseen])  # all integers or all strings
        classes = [*self.classes, *sorted(unseen)]
        if self.capacity is None:
            return dict.fromkeys(classes, self.per_class or 0)
        share, rest = divmod(self.capacity, max(len(classes), 1))
        return {label: share + (position < rest) for position, label in enumerate(classes)}

    def update(self, data: Any, labels: Any, picks: Mapping[Any, Iterable[int]]) -> None:
        """Store the picked rows of `data`, class by class, and cut every class to its quota.

        data: a tensor, or a mapping name -> tensor, one row a point. labels: (n,) of the same points.
        picks: class -> indices into data, best first (a Selection is one). A class already stored is replaced.
        Nothing is changed if anything is wrong.
        """
        tensors = _read_data(data)
        names = read_labels(labels)
        for name, tensor in tensors.items():
            if len(tensor) != len(names):
                raise ValueError(f"labels must be one a row of data{_of(name)}, {len(tensor)}, got {len(names)}")
        self._check_layout(tensors)
        if not isinstance(picks, Mapping):
            raise ValueError(f"picks must be a mapping class -> indices, as of select_per_class, got {picks!r}")
        chosen = {plain_label(label): _read_picks(plain_label(label), rows, names) for label, rows in picks.items()}
        quotas = self._quotas(chosen)
        pieces: dict[str, list[Tensor]] = {name: [tensor[:0].detach()] for name, tensor in tensors.items()}
        counts: dict[Label, int] = {}
        for label, quota in quotas.items():
            rows = (chosen[label] if label in chosen else self._places([label]))[:quota]
            source = tensors if label in chosen else self._data
            counts[label] = len(rows)
            for name, piece in pieces.items():
                piece.append(source[name].detach()[rows.to(source[name].device)].to(piece[0].device))
        self._data = {name: torch.cat(piece) for name, piece in pieces.items()}
        self._counts = counts

    def _check_layout(self, tensors: Mapping[str, Tensor]) -> None:
        """New data must look like what is held: the same names, shapes and types."""
        held = self._data or tensors
        if set(held) != set(tensors):
            raise ValueError(f"data must have the parts that are held, {_parts(held)}, got {_parts(tensors)}")
        for name, tensor in tensors.items():
            if tensor.shape[1:] != held[name].shape[1:] or tensor.dtype != held[name].dtype:
                raise ValueError(
                    f"data{_of(name)} must look like what is held: rows of shape {tuple(held[name].shape[1:])}, "
                    f"{held[name].dtype}; got {tuple(tensor.shape[1:])}, {tensor.dtype}"
                )

    # ------------------------------------------------------------ sampling

    def sample(
        self, n: int, generator: int | torch.Generator | None = None, classes: Iterable[Any] | None = None
    ) -> tuple[Data, Labels]:
        """`n` exemplars and their labels, each as often as any other: shuffled passes over what is held.

        Within one call no exemplar comes twice before all have come once. generator: an int or a torch.Generator; None
        goes on with the buffer's own, which starts from 0 and is saved with it. classes: draw from these alone; one
        that is named twice counts once.
        """
        n = check_range("n", n, 1, LARGEST, "exemplars")
        wanted = self.classes if classes is None else _listed("classes", classes)
        for label in wanted:
            if not isinstance(label, Label) or label not in self._counts:
                raise ValueError(f"classes must have been seen, {label!r} has not; seen are {self.classes}")
        places = self._places(dict.fromkeys(wanted))
        if not len(places):
            raise ValueError("there is nothing to sample: the buffer holds none of these classes; check len(buffer)")
        source = self._generator if generator is None else read_generator(generator)
        passes = [torch.randperm(len(places), generator=source) for _ in range(-(-n // len(places)))]
        return self._take(places[torch.cat(passes)[:n]])

    def _take(self, places: Tensor) -> tuple[Data, Labels]:
        """The rows at these places, and their labels: a tensor, or a list of strings."""
        if not len(places):
            raise ValueError("the buffer is empty; check len(buffer)")
        data = {name: tensor[places.to(tensor.device)] for name, tensor in self._data.items()}
        labels = np.repeat(np.array(self.classes), list(self._counts.values()))[places.numpy()]
        if labels.dtype.kind == "U":
            return _plain(data), labels.tolist()
        return _plain(data), torch.from_numpy(labels).to(next(iter(data.values())).device)

    # ------------------------------------------------------------ moving and saving

    def to(self, device: torch.device | str) -> Self:
        """Move everything held, in place."""
        self._data = {name: tensor.to(device) for name, tensor in self._data.items()}
        return self

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain values and tensors that are shared, not copied."""
        return {
            "capacity": self.capacity,
            "per_class": self.per_class,
            "counts": list(self._counts.items()),
            "data": dict(self._data),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the buffer that `state` describes, its rule included. Nothing is changed if anything is wrong."""
        if not isinstance(state, Mapping):
            raise ValueError(f"state must come from Buffer.state_dict, got {type(state).__name__}")
        missing = {"capacity", "per_class", "counts", "data", "generator"} - set(state)
        if missing:
            raise ValueError(f"state must come from Buffer.state_dict, {', '.join(sorted(missing))} missing")
        fresh = Buffer(state["capacity"], per_class=state["per_class"])
        try:
            fresh._counts = _read_counts(state["counts"])
            fresh._data = _read_data(state["data"]) if state["data"] else {}
            fresh._generator.set_state(state["generator"].cpu())
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"state is damaged: {error}; take it from Buffer.state_dict again") from None
        fresh._check_rows()
        self.__dict__.update(fresh.__dict__)

    def _check_rows(self) -> None:
        """Refuse a state whose parts do not fit each other, or the rule."""
        for name, tensor in self._data.items():
            if len(tensor) != len(self):
                raise ValueError(f"state is damaged: data{_of(name)} has {len(tensor)} rows, counts say {len(self)}")
        if len(self) and not self._data:
            raise ValueError(f"state is damaged: it has no data, counts say {len(self)} rows")
        held, most = len(self), self.capacity
        if self.per_class is not None:
            held, most = max(self._counts.values(), default=0), self.per_class
        if most is not None and held > most:
            raise ValueError(f"state is damaged: it holds {held}, more than {self._rule()}")

    def save(self, path: str | Path) -> None:
        """Write everything into one safetensors file, whole or not at all."""
        from safetensors.torch import save

        state = self.state_dict()
        plain = json.dumps({key: state[key] for key in ("capacity", "per_class", "counts")})
        tensors = {f"data.{name}": tensor.contiguous() for name, tensor in state["data"].items()}
        tensors["generator"] = state["generator"]
        try:
            content = save(tensors, {"keepset.Buffer": plain})
        except (KeyError, RuntimeError) as error:
            types = ", ".join(f"data{_of(name)} of {tensor.dtype}" for name, tensor in state["data"].items())
            raise ValueError(f"data must be what safetensors can hold, got {types} ({error}); convert it") from None
        write_atomically(path, lambda file: file.write_bytes(content))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The buffer that `save` wrote."""
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise ValueError(f"no such file: {path}")
        try:
            with safe_open(path, "pt") as file:
                text = (file.metadata() or {}).get("keepset.Buffer")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a mapping
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is damaged or no safetensors file ({error}); save the buffer again") from None
        if text is None:
            raise ValueError(f"{path} was not written by Buffer.save; read it with safetensors instead")
        try:
            state = json.loads(text)
            generator = tensors.pop("generator")
            data = {name.removeprefix("data."): tensor for name, tensor in tensors.items()}
            buffer = cls(state["capacity"], per_class=state["per_class"])
            buffer.load_state_dict({**state, "data": data, "generator": generator})
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error}); save the buffer again") from None
        return buffer


# ---------------------------------------------------------------- reading what is passed in


def _size(argument: str, value: int | None) -> int | None:
    return None if value is None else check_range(argument, value, 1, LARGEST, "exemplars")


def _listed(argument: str, values: Any) -> list[Any]:
    """What a sequence holds, numbers of numpy and torch as plain ones."""
    try:
        return [plain_label(value) for value in values]
    except TypeError:
        raise ValueError(f"{argument} must be a sequence, got {values!r}; put it into a list") from None


def _read_counts(counts: Iterable[Any]) -> dict[Label, int]:
    pairs = [(plain_label(label), check_range("a count", count, 0, LARGEST, "rows")) for label, count in counts]
    labels = [label for label, _ in pairs]
    read_labels(labels)  # all integers or all strings
    if len(set(labels)) < len(labels):
        raise ValueError(f"counts must name a class once, got {labels}")
    return dict(pairs)


def _read_data(data: object) -> dict[str, Tensor]:
    parts: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {ONE: data}
    if not parts:
        raise ValueError("data must hold at least one tensor, got none")
    for name, part in parts.items():
        if not isinstance(name, str):
            raise ValueError(f"data must have strings for names, got {name!r}")
        if isinstance(part, np.ndarray):
            try:
                parts[name] = torch.from_numpy(part.copy())
            except (TypeError, ValueError):
                what = f"data{_of(name)} must be of a type that torch has too"
                raise ValueError(f"{what}, got {part.dtype}; convert it first") from None
        elif not isinstance(part, Tensor):
            raise ValueError(f"data{_of(name)} must be a tensor or a mapping name -> tensor, got {type(part).__name__}")
        if parts[name].ndim == 0:
            raise ValueError(f"data{_of(name)} must have one row a point, got a single number")
    return parts


def _read_picks(label: Label, rows: Iterable[Any], labels: np.ndarray[Any, Any]) -> Tensor:
    what = f"picks[{label!r}]"
    found = [check_range(what, row, 0, len(labels) - 1, "rows of data") for row in _listed(what, rows)]
    for row in found:
        if labels[row] != label:
            raise ValueError(f"{what} must be rows of that class, but row {row} has label {labels[row].item()!r}")
    if len(set(found)) < len(found):
        raise ValueError(f"{what} must not repeat a row, got {found}")
    return torch.tensor(found, dtype=torch.int64)


def _plain(tensors: dict[str, Tensor]) -> Data:
    return tensors[ONE] if list(tensors) == [ONE] else tensors


def _of(name: str) -> str:
    return f"[{name!r}]" if name else ""


def _parts(tensors: Mapping[str, Tensor]) -> str:
    return "one tensor" if list(tensors) == [ONE] else ", ".join(map(repr, tensors))


def _spread(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    if not found:
        return "nothing yet"
    return f"{found[0]} to {found[-1]} a class" if len(found) > 1 else f"{found[0]} a class"
