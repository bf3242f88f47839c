"""keepset claims: what stored results say to claims that a file lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import say
from .sheets import decimals, output_format, put_text, show_sheets
from .stored import Runs, conditions, finished_runs

Option = typer.Option


def claims(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML with a table [[claim]] for each claim.")],
    folders: Runs,
    where: Annotated[
        list[str] | None, Option("--where", help="Only these runs: learner=er-ace; capacity=100,500; again for more.")
    ] = None,
    brief: Annotated[bool, Option("--brief", help="A line a claim, all its pairs together.")] = False,
    format_: Annotated[str | None, Option("--format", help="terminal, markdown, latex or csv.")] = None,
    digits: Annotated[int | None, Option(help="Decimals; if not given, 1 in a terminal and 2 elsewhere.")] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Write .md, .tex or .csv, or a picture, .png, .pdf or .svg.")
    ] = None,
) -> None:
    """Hold stored results against claims: the runs of each are paired by seed, and the 95 % interval decides.

    \b
    Examples:
      keepset claims experiments/claims/paper.toml runs
      keepset claims experiments/claims/paper.toml runs --where learner=er-ace --where epochs=10
      keepset claims mine.toml runs --brief -o claims.md
      keepset claims mine.toml runs -o claims.png
    """
    from ..report.axes import asked_for
    from ..report.claims import read_claims
    from ..report.evidence import evidence
    from ..report.fields import counted
    from ..report.forest import draw_claims
    from ..report.stored import known_fields
    from ..report.style import ENDINGS, check_picture, save
    from ..report.verdicts import brief_sheet, claim_sheets, claims_csv

    if output is not None and output.suffix in ENDINGS:
        if format_ is not None or brief:
            raise ValueError(
                f"a picture has neither --format nor --brief; leave them out, or write another file than {output}"
            )
        kind = "picture"
        check_picture(output)
    else:
        kind = output_format(format_, output)
    shown = decimals(digits, kind)
    asked = read_claims(file)
    every = finished_runs(folders)
    records, _ = asked_for(every, conditions(where or []))
    found = evidence(asked, records, known_fields(every))
    if output is not None and kind == "picture":
        save(draw_claims(found), output)
        say(f"{counted(len(found), 'claim')} drawn in {output}")
    elif kind == "csv":
        put_text(claims_csv(found, brief), output)
    else:
        show_sheets([brief_sheet(found, shown)] if brief else claim_sheets(found, shown), kind, output)
