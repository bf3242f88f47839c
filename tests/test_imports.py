"""Who may import whom, what `import keepset` loads, and the public names."""

import ast
import subprocess
import sys
from pathlib import Path

import keepset

SOURCE = Path(keepset.__file__).parent

# room -> the rooms of ours that it may import; a room not named here may not exist
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"selection", "buffer", "embedding"},
    "checks": set(),
    "files": {"checks"},
    "packed": set(),
    "cluster": set(),
    "selection": {"checks"},
    "distributed": {"checks", "files", "cluster", "selection"},
    "buffer": {"checks", "files"},
    "embedding": {"checks"},
    "metrics": set(),
    "data": {"checks", "files", "packed"},
    "learning": {"checks"},
    "views": {"checks", "files", "embedding", "learning"},
    "experiment": {
        *{"checks", "files", "cluster", "data", "learning", "views", "selection", "buffer", "embedding", "metrics"},
    },
    "report": {"checks", "files", "metrics", "packed", "selection"},
    "commands": {
        *{
            "checks",
            "files",
            "selection",
            "distributed",
            "data",
            "learning",
            "views",
            "experiment",
            "metrics",
            "report",
        },
    },
    "cli": {"__init__", "commands"},
    "__main__": {"cli"},
}
# what a room may import from outside, besides the standard library
OUTSIDE: dict[str, set[str]] = {
    "selection": {"numpy", "torch", "faiss"},
    "cluster": {"ray"},
    "distributed": {"numpy", "torch", "pyarrow"},
    "buffer": {"numpy", "torch", "safetensors"},
    "files": {"numpy", "torch", "safetensors"},
    "data": {"numpy", "torch", "safetensors", "sklearn", "PIL", "pooch"},
    "views": {"numpy", "torch", "safetensors", "filelock", "transformers"},
    "experiment": {"torch", "pydantic", "safetensors", "submitit", "filelock"},
    "report": {"numpy", "torch", "safetensors", "matplotlib"},
    "commands": {"numpy", "rich", "torch", "typer"},
    "cli": {"typer"},
}


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def imports_of(file: Path) -> set[tuple[str, bool]]:
    """(name, is ours) of everything a file imports, also inside functions."""
    found: set[tuple[str, bool]] = set()
    inside = len(file.relative_to(SOURCE).parts) - 1
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {(alias.name.partition(".")[0], False) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(((node.module or "").partition(".")[0], False))
        elif isinstance(node, ast.ImportFrom) and node.level > inside:
            found.add(((node.module or "__init__").partition(".")[0], True))
    return found


def test_import_table_holds() -> None:
    for file in sorted(SOURCE.rglob("*.py")):
        room = room_of(file)
        assert room in MAY_IMPORT, f"{file} stands in no known room"
        for name, ours in imports_of(file):
            if ours:
                assert name in MAY_IMPORT[room] | {room}, f"{file} may not import {name}"
            elif name not in sys.stdlib_module_names:
                assert name in OUTSIDE.get(room, {"numpy", "torch"}), f"{file} may not import {name}"


def loaded_by(code: str) -> set[str]:
    """The packages from outside that a program has loaded in the end."""
    code += "; import sys; print(*sys.modules, sep='\\n')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.partition(".")[0] for name in told.splitlines()} - set(sys.stdlib_module_names)
    return {name for name in loaded if not name.startswith("_")} - {"keepset"}


def test_public_names__load_torch_and_numpy_alone_and_only_when_they_are_used() -> None:
    assert not {"torch", "numpy"} & loaded_by("import keepset; assert 'select' in dir(keepset)")
    of_torch = loaded_by("import torch, numpy")
    assert loaded_by("from keepset import *; select") == of_torch


def test_command_line__loads_no_torch_for_its_help() -> None:
    """Half a second instead of three."""
    assert not {"torch", "numpy"} & loaded_by(
        "from keepset import cli; cli.app(['run', '--help'], standalone_mode=False)"
    )


def test_selection__lists_its_names_before_they_are_loaded() -> None:
    code = "import keepset.selection as s; assert {*s.__all__} <= {*dir(s)}"
    assert "torch" not in loaded_by(code)
    assert "torch" in loaded_by("from keepset.selection import *; select_per_class")


def test_tables__need_no_torch() -> None:
    rooms = "from keepset.report import lines, pairs, render, sheets, stored, tables"
    assert "torch" not in loaded_by(f"{rooms}; from keepset.experiment import finished")


def test_public_names_are_pinned() -> None:
    names = ["Buffer", "Plan", "Selection", "coverage", "embed", "plan", "select", "select_per_class"]
    assert sorted(keepset.__all__) == names
    assert all(hasattr(keepset, name) for name in keepset.__all__)


def test_version_is_that_of_the_package() -> None:
    text = (SOURCE.parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{keepset.__version__}"' in text
