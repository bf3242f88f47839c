"""Put below the commands of a page what they print: python docs/fill.py

A fenced command or script in Python that is followed by `<!-- prints -->` has its output from there to `<!-- end -->`.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRINTED = re.compile(
    r"(^```(?:python)?\n((?:(?<=python\n)|(?=keepset ))[^`]+)```\n\n<!-- prints -->\n)"
    r"(?:(?!<!-- prints -->).)*?(?=^<!-- end -->$)",
    re.MULTILINE | re.DOTALL,
)


def filled(text: str) -> str:
    if not len(PRINTED.findall(text)) == text.count("<!-- prints -->") == text.count("<!-- end -->"):
        raise ValueError("a <!-- prints --> without its command before or its <!-- end --> behind it")
    return PRINTED.sub(lambda found: f"{found[1]}\n{printed(found[2])}\n", text)


def printed(code: str) -> str:
    """What a command, `keepset ...`, or else a script prints."""
    command = ["-m", *shlex.split(code.replace("\\\n", " "))] if code.startswith("keepset ") else ["-c", code]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip() + "\n"


def pages() -> list[Path]:
    return [page for page in ROOT.glob("*.md") if PRINTED.search(page.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
