"""The state of a training in a file: tensors and a few plain values, written whole or not at all."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..files import write_atomically


def write_state(path: Path, tensors: Mapping[str, Tensor], of: str, about: Mapping[str, Any]) -> None:
    """`of` names the training, so that another one does not go on from its file."""
    from safetensors.torch import save

    content = save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        {"about": json.dumps({**about, "of": of})},
    )
    write_atomically(path, lambda file: file.write_bytes(content))


def read_state(path: Path, like: Mapping[str, Tensor], of: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What `write_state` wrote, if it is whole, of the same training, and has tensors of the shapes of `like`."""
    from safetensors import safe_open

    shapes = {name: tensor.shape for name, tensor in like.items()}

    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a mapping
        if about["of"] != of or {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise ValueError("it belongs to another training")
    except Exception as error:  # whatever a damaged file raises, training can begin again
        warnings.warn(f"{path} cannot be used ({error}); training from the beginning", RuntimeWarning, stacklevel=2)
        return None
    return tensors, about
