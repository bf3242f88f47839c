"""A connection to Ray."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


def import_ray(user: str) -> Any:
    """Ray, or an error that says who needs it."""
    try:
        import ray
    except ImportError:
        raise ValueError(f"{user} needs Ray; pip install keepset[ray]") from None
    return ray


def connect(ray: Any, address: str) -> None:
    """To the cluster at `address`, else that of $RAY_ADDRESS, or one that is started on this machine."""
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if not address and not os.environ.get("RAY_ADDRESS"):
        quiet["include_dashboard"] = False
    try:
        ray.init(address=address or None, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"cannot reach Ray at {address or 'this machine'}: {error}") from None


@contextlib.contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    """The caller's connection, if there is one, or else one that ends here."""
    ours = not ray.is_initialized()
    if ours:
        connect(ray, address)
    try:
        yield
    finally:
        if ours:
            ray.shutdown()
