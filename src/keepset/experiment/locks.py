"""Who does which run: a lock a run, which the system lets go of when its holder dies, however it dies."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

FOLDER = ".claims"


class Locks:
    """The runs of a folder that this process has taken."""

    def __init__(self, out: str | Path) -> None:
        self.folder = Path(out) / FOLDER
        self._held: dict[str, FileLock] = {}

    def take(self, name: str) -> bool:
        """Whether the run is ours now; another process, or another object of this one, may have it."""
        if name in self._held:
            return True
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / f"{name}.lock", thread_local=False)
            lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            raise ValueError(f"cannot claim runs in {self.folder}: {error.strerror or error}") from None
        self._held[name] = lock
        return True

    def let_go(self, name: str) -> None:
        lock = self._held.pop(name, None)
        if lock is not None:
            lock.release()

    def let_go_all(self) -> None:
        for name in list(self._held):
            self.let_go(name)

    def free(self, name: str) -> bool:
        """Whether nobody has it."""
        if name in self._held or not self.take(name):
            return False
        self.let_go(name)
        return True
