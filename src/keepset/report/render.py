"""Sheets as Markdown and LaTeX, and tables as tidy CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

from .pairs import Place
from .paper import departures, in_errors
from .sheets import Sheet, all_places, printed_beside
from .statistics import Paired
from .tables import Table

# ---------------------------------------------------------------- Markdown and LaTeX


def markdown(sheets: Iterable[Sheet]) -> str:
    return "\n".join(_markdown(sheet) for sheet in sheets)


def _markdown(sheet: Sheet) -> str:
    heads = [*sheet.corner, *(", ".join(column) for column in sheet.columns)]
    rule = ["---"] * len(sheet.corner) + ["---:"] * len(sheet.columns)
    lines = [heads, rule]
    for line in sheet.lines:
        cells = [f"**{text}**" if i in line.bold else text for i, text in enumerate(map(_in_markdown, line.cells))]
        lines.append([*map(_in_markdown, line.heads), *cells])
    lines[0] = list(map(_in_markdown, heads))
    body = "".join(f"| {' | '.join(parts)} |\n" for parts in lines)
    notes = "".join(f"\n{_in_markdown(note)}\n" for note in sheet.notes)
    return f"{_in_markdown(sheet.caption)}\n\n{body}{notes}"


def _in_markdown(text: str) -> str:
    for sign in "\\|*_`<[":
        text = text.replace(sign, "\\" + sign)
    return text


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    **{sign: f"\\{sign}" for sign in "&%$#_"},
    "~": r"\textasciitilde{}",
    "\u00a0": "~",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "†": r"$^\dagger$",
    "√": r"$\surd$",
    "²": "$^2$",
}


def latex(sheets: Iterable[Sheet]) -> str:
    """A table environment a sheet, in the style of booktabs."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_latex(sheet) for sheet in sheets)


def _latex(sheet: Sheet) -> str:
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{in_latex(sheet.caption)}}}"]
    lines.append(rf"\begin{{tabular}}{{{'l' * len(sheet.corner)}{'r' * len(sheet.columns)}}}")
    lines.append(r"\toprule")
    deep = max((len(column) for column in sheet.columns), default=1)
    for level in range(deep):
        corner = sheet.corner if level == deep - 1 else ("",) * len(sheet.corner)
        lines.append(_latex_line([*corner, *(column[level] for column in sheet.columns)]))
    lines.append(r"\midrule")
    lines.extend(
        _latex_line([*line.heads, *line.cells], {len(line.heads) + i for i in line.bold}) for line in sheet.lines
    )
    lines.extend([r"\bottomrule", r"\end{tabular}"])
    lines.extend(rf"\par\smallskip{{\footnotesize {in_latex(note)}}}" for note in sheet.notes)
    return "\n".join([*lines, r"\end{table}", ""])


def _latex_line(parts: Sequence[str], bold: Iterable[int] = ()) -> str:
    bold = set(bold)
    cells = [rf"\textbf{{{in_latex(text)}}}" if i in bold else in_latex(text) for i, text in enumerate(parts)]
    line = " & ".join(cells).strip()
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


def in_latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)


# ---------------------------------------------------------------- CSV


def tidy_csv(
    tables: Sequence[Table],
    paper: bool = False,
    tests: Sequence[Mapping[Place, Paired]] | None = None,
    against: str = "",
) -> str:
    """A line a cell, with numbers in full; a cell without runs has n = 0."""
    file = io.StringIO()
    lines = []
    for number, table in enumerate(tables):
        for place in all_places(table):
            line = _csv_line(table, place, paper)
            if tests is not None:
                line.update(_csv_test(tests[number].get(place), against))
            lines.append(line)
    writer = csv.DictWriter(file, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def _csv_line(table: Table, place: Place, paper: bool) -> dict[str, object]:
    cell = table.cells.get(place)
    line: dict[str, object] = {"metric": table.metric, **table.shared}
    line.update(zip(table.axes, (*place[0], *place[1]), strict=True))
    line.update({"mean": "", "error": "", "n": 0})
    if cell is not None:
        line.update({"mean": full(cell.mean), "error": full(cell.error), "n": len(cell.values)})
    printed = printed_beside(table, cell) if paper and cell is not None else None
    if paper:
        line.update(dict.fromkeys(("paper_mean", "paper_error", "difference_in_errors", "protocol"), ""))
    if cell is not None and printed is not None:
        line.update({"paper_mean": printed.mean, "paper_error": printed.error})
        line["difference_in_errors"] = full(in_errors(cell.mean, cell.error, printed))
        line["protocol"] = " and ".join(departures(cell.fields)) or "the paper's"
    return line


def _csv_test(test: Paired | None, against: str) -> dict[str, object]:
    names = ("difference", "low", "high", "p")
    if test is None:
        return {"against": "", **dict.fromkeys(names, ""), "pairs": ""}
    return {"against": against, **{name: full(getattr(test, name)) for name in names}, "pairs": test.pairs}


def full(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.8g}"
