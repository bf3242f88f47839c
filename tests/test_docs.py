"""What the documentation shows must work: its Python, its shell commands, its links and its tables."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from keepset import cli
from keepset.selection import SELECTORS
from keepset.selection.options import Cover

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("selectors/*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
ON_RESULTS = r"keepset\s+(?:table|plot|claims\s+experiments/claims/\w+\.toml)\s+experiments/results"
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is that of its fence."""

    page: Path
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2])
        for found in FENCE.finditer(text)
        if found[1] == language
    ]


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page, "python")], ids=str)
def test_python_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")  # as in a checkout
    code = "\n" * block.line + block.code  # so that a traceback names the line of the page
    exec(compile(code, str(block.page), "exec"), {"__name__": "__main__"})


def steps(code: str) -> list[str]:
    """The lines of a block; or the block, where a statement goes over several."""
    lines = code.strip().splitlines()
    try:
        return [line for line in lines if shlex.split(line)]
    except ValueError:  # a quotation that goes on in the next line
        return [code]


def call(step: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and errors; a plain `keepset …` in this process, since loading torch takes longer than most of them."""
    if step.startswith("keepset ") and not set("|>&\\;\n") & set(step):
        monkeypatch.setattr(sys, "argv", shlex.split(step, comments=True))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), ""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command, environment = ["sh", "-eu", "-c", step], {**os.environ, "PATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_shell_blocks_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks(DOCS / "shell.md", "sh")
    monkeypatch.chdir(tmp_path)
    assert shown
    for block in shown:
        for step in steps(block.code):
            code, told = call(step, monkeypatch)
            assert code == 0, f"{block}: {step}\n{told}"


def on_stored_results() -> list[str]:
    """Every table, picture and verdict of the stored runs that a page tells the command of, in blocks and sentences."""
    whole = re.compile(rf"{ON_RESULTS}(?:[^`\n#\\]|\\\n)*")
    within = re.compile(rf"(?<!`)`({ON_RESULTS}[^`]*)`")
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found += [each for block in blocks(page, "") for each in whole.findall(block.code)]
        found += within.findall(FENCE.sub("", text))
    return [" ".join(each.replace("\\\n", " ").split()) for each in found]


@pytest.mark.parametrize("command", on_stored_results())
def test_command_on_the_stored_results_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As new runs come to the stored ones, what was told before must still be one kind of runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    (tmp_path / "docs").mkdir()
    code, told = call(command, monkeypatch)
    assert code == 0, told


@pytest.mark.parametrize("name", SELECTORS)
def test_selector_has_page__ends_with_differences(name: str) -> None:
    headings = re.findall(r"^##? (.+)$", (DOCS / "selectors" / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == name
    assert headings[-1] == "Differences from the paper"


@pytest.mark.parametrize("name", SELECTORS)
def test_selector_is_in_the_table(name: str) -> None:
    assert f"[`{name}`]({name}.md)" in (DOCS / "selectors" / "index.md").read_text(encoding="utf-8")


def test_cover_options__table_has_every_option_and_default() -> None:
    text = (DOCS / "selectors" / "index.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", text, re.MULTILINE))
    assert shown == {field.name: repr(field.default).replace("'", '"') for field in fields(Cover)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    relative = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in relative if target and not (page.parent / target).exists()] == []


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and Sphinx make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_find_them(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = target.partition("#")
        if anchor and not re.match(r"[a-z]+:", target):
            assert anchor in anchors(page.parent / path if path else page), target
