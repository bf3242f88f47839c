"""The state of a training in a file: tensors and a few plain values, written whole or not at all."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..files import write_atomically


def write_state(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    from safetensors.torch import save

    content = save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        {"about": json.dumps(about)},
    )
    write_atomically(path, lambda file: file.write_bytes(content))


def read_state(path: Path, like: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What `write_state` wrote, if it is whole and has tensors of the same names and shapes as `like`."""
    from safetensors import safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, not a mapping
        shapes = ({name: tensor.shape for name, tensor in found.items()} for found in (tensors, like))
        if len(set(map(str, shapes))) > 1:
            raise ValueError("it belongs to another training")
    except Exception as error:  # whatever a damaged file raises, training can begin again
        warnings.warn(f"{path} cannot be used ({error}); training from the beginning", RuntimeWarning, stacklevel=2)
        return None
    return tensors, about
