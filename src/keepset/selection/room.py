"""How much memory there is, and how much the distances between all points would take."""

from __future__ import annotations

from pathlib import Path

import torch

SHARE = 0.5  # of the free memory that a selection may take unasked


def free_bytes(device: torch.device) -> int:
    """Memory that can be had now, on that device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return min(_of_the_machine(), _of_the_group())


def _of_the_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 2**62  # not Linux: what is free cannot be told


def _of_the_group() -> int:
    """What a container leaves, if it has a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        statistics = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        cached = int(dict(line.split() for line in statistics)["inactive_file"])
        return 2**62 if limit == "max" else int(limit) - used + cached
    except (OSError, KeyError, ValueError):
        return 2**62


def matrix_bytes(count: int, views: int, size: int, *, hard: bool, separate: bool) -> int:
    """What the dense way holds at once; `size`: bytes of a number."""
    if hard:
        return count * count * (size + views)
    return count * count * size * (views if separate else 1)


def in_words(amount: float) -> str:
    """`1.5 GB`

    >>> in_words(2_500_000)
    '2.5 MB'
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= size:
            return f"{amount / size:.3g} {unit}"
    return f"{amount:.0f} bytes"
