"""A step as a CUDA graph, to be played again without the cost of launching its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

WARM_STEPS = 3  # before a capture: compiling, and choosing convolutions


def captured(
    step: Callable[[], object], moving: Iterable[Tensor], *, stream: torch.cuda.Stream | None = None, fastest: bool
) -> Callable[[], None]:
    """`step` as a graph, to be replayed by calling what is returned.

    step: reads and writes tensors that stay where they are, and reads no value back. It is run a few times first, and
    the tensors in `moving` are put back afterwards, so that it is as if only captured.
    fastest: cuDNN tries what it has and keeps the fastest, or else takes algorithms that always give the same bits.
    """
    restore = restorer(moving)
    aside = stream or torch.cuda.Stream(priority=-1)  # before what the step itself puts aside
    aside.wait_stream(torch.cuda.current_stream())
    with _algorithms(fastest):
        with torch.cuda.stream(aside):
            for _ in range(WARM_STEPS):
                restore()  # a step may count where it is, and must not run past the end
                step()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside):
            step()
    restore()
    torch.cuda.synchronize()
    return graph.replay


def restorer(moving: Iterable[Tensor]) -> Callable[[], None]:
    """What puts the tensors back, in place, as they are now."""
    kept = [(tensor, tensor.detach().clone()) for tensor in moving]

    def restore() -> None:
        with torch.no_grad():
            for tensor, before in kept:
                tensor.copy_(before)

    return restore


@contextlib.contextmanager
def _algorithms(fastest: bool) -> Iterator[None]:
    """cuDNN's guess took 0.19 ms for one of the 19 convolutions of a step of 512 images, where trying finds better."""
    flags = torch.backends.cudnn
    before = flags.benchmark, flags.deterministic
    flags.benchmark, flags.deterministic = fastest, not fastest
    try:
        yield
    finally:
        flags.benchmark, flags.deterministic = before
