"""What is printed of the stored results is what they are."""

import re
import sys
from pathlib import Path

import pytest

from keepset.report.stored import Record, read_records
from keepset.report.tables import tabulate

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import fill  # noqa: E402


@pytest.mark.parametrize("page", fill.pages(), ids=lambda page: page.name)
def test_pages__have_what_their_commands_print(page: Path) -> None:
    """python docs/fill.py puts it there."""
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- prints -->") == len(fill.PRINTED.findall(text)) > 0
    assert fill.filled(text) == text


def _shown(text: str, head: str) -> list[list[str]]:
    """The cells of the table that begins so, without what makes them bold or a link."""
    table = text[text.index(head) :].partition("\n\n")[0]
    plain = re.sub(r"\]\([^)]*\)|[*\[]", "", table)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in plain.splitlines()[2:]]


def test_readme__opening_table_is_that_of_the_stored_results() -> None:
    rows = _shown((ROOT / "README.md").read_text(encoding="utf-8"), "| selector | FAA at 100 | at 500 |")
    fast = {"learner": ["er-ace"], "order": ["canonical"], "epochs": ["10"]}
    assert len(rows) == 8
    for name, *cells in rows:
        for place, (metric, capacity) in enumerate((m, c) for m in ("FAA", "AAA") for c in (100, 500, 2000)):
            cell = tabulate(_results(), metric, ["capacity"], ["variant"], {**fast, "variant": [name]}).cells.get(
                ((capacity,), (name,))
            )
            assert cells[place] == ("–" if cell is None else f"{cell.mean:.1f} ± {cell.error:.1f}"), (
                name,
                metric,
                capacity,
            )


def _results() -> list[Record]:
    return read_records([ROOT / "experiments" / "results"]).records
