"""What is printed of the stored results is what they are."""

import re
import sys
from pathlib import Path

import pytest

from keepset.report.stored import read_records
from keepset.report.tables import best_places, tabulate

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import fill  # noqa: E402


def test_reproduced__has_what_its_commands_print() -> None:
    """python docs/fill.py puts it there."""
    text = (ROOT / "REPRODUCED.md").read_text(encoding="utf-8")
    assert len(fill.PRINTED.findall(text)) > 5
    assert fill.filled(text) == text


@pytest.mark.parametrize("lost", ["<!-- end -->", "<!-- prints -->"])
def test_fill__loses_nothing_where_a_mark_is_missing(lost: str) -> None:
    block = "```\nkeepset table nowhere\n```\n\n<!-- prints -->\n<!-- end -->\n"
    with pytest.raises(ValueError, match="without its command before or"):
        fill.filled(block.replace(lost, "") + "words\n\n" + block)


def test_readme__opening_table_is_that_of_the_stored_results() -> None:
    """With the best of each column in bold, and all within its standard error."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| selector | FAA at 100 | at 500 |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    names = [re.sub(r"\]\([^)]*\)|[*\[]", "", row[0]) for row in rows]
    where = {"learner": ["er-ace"], "order": ["canonical"], "epochs": ["10"], "variant": names}
    records = read_records([ROOT / "experiments" / "results"]).records
    expected: list[list[str]] = [[] for _ in names]
    for metric in ("FAA", "AAA"):
        found = tabulate(records, metric, ["capacity"], ["variant"], where)
        best = best_places(found)
        for capacity in (100, 500, 2000):
            for cells, name in zip(expected, names, strict=True):
                place = ((capacity,), (name,))
                cell = found.cells.get(place)
                told = "–" if cell is None else f"{cell.mean:.1f} ± {cell.error:.1f}"
                cells.append(f"**{told}**" if place in best else told)
    assert [row[1:] for row in rows] == expected
    assert "mers-pure" in names
