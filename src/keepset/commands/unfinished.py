"""A choice that takes long: its picks so far, kept beside the work so that a later call can go on from them."""

from __future__ import annotations

import base64
import json
import signal
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chosen import read_chosen, write_chosen

if TYPE_CHECKING:
    import torch

    from ..files import Array
    from ..selection import Selection

EVERY = 30.0  # seconds between two writes of what there is
ROWS = 16  # rows of an array that its fingerprint looks at


class Unfinished:
    """The picks of a choice while it is made. With a file they are written to it every half minute.

    Beside an unfinished file lies another one, which says what choice it is part of, how many of its picks count and
    where the random numbers stood.
    """

    def __init__(
        self, output: Path | None, budget: int, choice: Mapping[str, Any], generator: torch.Generator, falling: bool
    ) -> None:
        """falling: no pick gains more than the one before, but for a tie's rounding."""
        self.output, self.budget, self.choice = output, budget, choice
        self.generator, self.falling = generator, falling
        self.picks: list[tuple[int, float]] = []
        self.earlier = 0
        self.gained = 0.0
        self.state = (0, 0.0, generator.get_state())  # how many picks count, what they gained, the random numbers
        self.first = self.state
        self.marked = False  # whether the file beside speaks of this choice
        self.written = time.monotonic()

    def resume(self, count: int) -> None:
        """Take over what the file holds, if it is a part of this same choice of `count` points."""
        if self.output is None:
            raise ValueError("--resume goes on from a file; name it with -o")
        path = side_file(self.output)
        if not self.output.is_file():
            return
        found = read_chosen(self.output, count)
        if len(found) > self.budget:
            raise ValueError(
                f"{self.output} holds another choice: it has {len(found)} picks, --budget is {self.budget}; "
                "name another file"
            )
        if not path.is_file():
            if len(found) < self.budget:
                raise ValueError(
                    f"{self.output} has {len(found)} of {self.budget} picks, but {path}, which says what choice it is "
                    "part of, is not there; pass it as --start, or leave out --resume to start anew"
                )
            self.picks = found
        else:
            self._take_over(path, found)
        self.earlier = len(self.picks)

    def _take_over(self, path: Path, found: list[tuple[int, float]]) -> None:
        import torch

        from ..checks import check_range
        from ..files import UNREADABLE

        try:
            side = json.loads(path.read_text(encoding="utf-8"))
            choice, gained = dict(side["choice"]), float(side["gained"])
            picks = check_range("picks", side["picks"], 0, 2**62, "how many count")
            state = torch.frombuffer(bytearray(base64.b64decode(side["random numbers"])), dtype=torch.uint8)
            torch.Generator().set_state(state)
        except UNREADABLE as error:
            raise ValueError(f"{path} is damaged ({error}); leave out --resume to start anew") from None
        different = differences(choice, self.choice)
        if different:
            raise ValueError(
                f"{self.output} is part of another choice: {'; '.join(different)}; call it as before, or leave out "
                "--resume to start anew"
            )
        if len(found) < picks:
            raise ValueError(f"{self.output} has {len(found)} picks, {path} says {picks}; leave out --resume")
        self.picks, self.gained = found[:picks], gained
        self.generator.set_state(state)
        self.state, self.marked = (picks, gained, state), True

    @property
    def missing(self) -> int:
        return self.budget - len(self.picks)

    def add(self, index: int, gain: float) -> None:
        """One more pick."""
        limit = self.picks[-1][1] if self.falling and self.picks else gain
        self.picks.append((index, gain * (limit / gain) if gain > limit else gain))
        self.gained += gain
        self.state = (len(self.picks), self.gained, self.generator.get_state())
        if time.monotonic() - self.written >= EVERY:
            self.save()

    def save(self) -> None:
        """Write the picks so far; a call that is killed in between leaves files that fit each other."""
        if self.output is None:
            return
        from ..selection import Selection

        state = self.state
        if not self.marked:
            self._write_side(*self.first)
            self.marked = True
        indices, gains = _arrays(self.picks[: state[0]])
        write_chosen(self.output, {None: Selection(indices, gains)})
        self._write_side(*state)
        self.written = time.monotonic()

    def _write_side(self, picks: int, gained: float, state: torch.Tensor) -> None:
        from ..files import write_atomically

        numbers = base64.b64encode(state.numpy().tobytes()).decode("ascii")
        side = {"choice": dict(self.choice), "picks": picks, "gained": gained, "random numbers": numbers}
        text = json.dumps(side, indent=1, ensure_ascii=False) + "\n"
        if self.output is not None:
            write_atomically(side_file(self.output), lambda path: path.write_text(text, encoding="utf-8"))

    def whole(self, rest: Selection) -> Selection:
        """The earlier picks and the rest as one choice, with the gains that were told, so that a file with a break is
        the same to the last digit."""
        if self.output is None or not self.picks:
            return rest
        indices, gains = _arrays(self.picks)
        return replace(rest, indices=indices, gains=gains, shares={})

    def finish(self) -> None:
        """The file is whole: what was beside it goes."""
        if self.output is not None:
            side_file(self.output).unlink(missing_ok=True)

    def break_off(self) -> str:
        """Keep what there is; says what was kept, and how to go on."""
        count = self.state[0]
        done = f"broken off after {count} of {self.budget} picks" if count else "broken off before the first pick"
        if self.output is None:
            return f"{done}; with -o FILE they would have been kept"
        if not count:
            return f"{done}; nothing is written"
        if count > self.earlier:
            self.save()
        return f"{done}, which {self.output} holds; the same command with --resume goes on from there"


def side_file(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial.json")


def _arrays(picks: Sequence[tuple[int, float]]) -> Any:
    """Indices and gains."""
    import numpy as np

    return np.array([index for index, _ in picks], np.int64), np.array([gain for _, gain in picks], np.float64)


# ---------------------------------------------------------------- which choice it is


def describe(
    views: Mapping[str, Array], specs: Sequence[str], arrays: Mapping[str, Any], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """What tells one choice from another. `arrays`: of those flags that name a file, what is in it."""
    described = {f"VIEW {position}": _place(spec) for position, spec in enumerate(specs, 1)}
    for position, view in enumerate(views.values(), 1):
        described[f"shape of VIEW {position}"] = " × ".join(map(str, view.shape))
        described[f"rows of VIEW {position}"] = fingerprint(view)
    for name, value in flags.items():
        if value is not None:
            described[f"--{name.replace('_', '-')}"] = value
    for name, array in arrays.items():
        if array is not None and not isinstance(array, str):
            described[f"numbers of --{name.replace('_', '-')}"] = fingerprint(array)
    return described


def _place(spec: str) -> str:
    return str(Path(spec).resolve())


def fingerprint(array: Array) -> str:
    """Of an array's type, shape and a few rows spread over it."""
    import numpy as np
    from torch import Tensor, uint8

    length = array.shape[0] if array.ndim else 0
    rows = sorted({length * part // ROWS for part in range(ROWS)} | {length - 1})
    some = array[rows] if length else array
    flat = some.reshape(-1)
    content = flat.contiguous().view(uint8).numpy() if isinstance(flat, Tensor) else np.ascontiguousarray(flat)
    return f"{zlib.crc32(f'{array.dtype} {tuple(array.shape)}'.encode() + content.tobytes()):08x}"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = list(dict.fromkeys([*before, *now]))
    return [
        f"{name} was {before.get(name, 'not given')}, is {now.get(name, 'not given')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


# ---------------------------------------------------------------- signals


class Terminated(KeyboardInterrupt):
    """The process was asked to end, rather than by a key."""


@contextmanager
def heeding_signals() -> Iterator[None]:
    """SIGTERM ends the work inside as Ctrl-C does."""

    def end(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # only there can signals be heeded
        yield
        return
    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def exit_code(stop: KeyboardInterrupt) -> int:
    """As shells tell it: 128 and the signal's number."""
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)
