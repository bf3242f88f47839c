"""Workers as processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

import torch

from .work import work


class LocalCrew:
    """Processes that share the cores among them, and end with the one that started them."""

    def __init__(self, text: str, size: int) -> None:
        self.text, self.size, self.started = text, size, 0
        self.processes: list[SpawnProcess] = []
        self.threads = max(1, torch.get_num_threads() // size)

    def start(self) -> None:
        place, self.started = self.started, self.started + 1
        arguments = self.text, place, self.size, self.threads
        process = multiprocessing.get_context("spawn").Process(target=_worker, args=arguments, daemon=True)
        process.start()
        self.processes.append(process)

    def alive(self) -> int:
        return sum(process.is_alive() for process in self.processes)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()
            process.close()
        self.processes = []


def _worker(text: str, place: int, places: int, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    work(text, place, places)


def _end_with_parent() -> None:
    """A parent that was killed stops nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
