"""Processes that a test has started, to be killed in the middle of their work."""

import contextlib
import os
from pathlib import Path


def descendants(name: str) -> list[int]:
    """Processes that this one started, or one that it started, and whose command begins so."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    named = []
    for pid in found:
        with contextlib.suppress(OSError):
            named += [pid] * Path(f"/proc/{pid}/cmdline").read_bytes().startswith(name.encode())
    return named
