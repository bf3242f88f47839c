"""keepset ls: what there is to choose from."""

from __future__ import annotations

from .console import say, show_table


def ls() -> None:
    """List the selectors, the views each reads, and its options.

    \b
    Example:
      keepset ls
    """
    from ..selection.api import ALIASES, COVER, SELECTORS

    rows = []
    for name, entry in SELECTORS.items():
        own = [option for option in entry.options if option not in COVER]
        rows.append([name, entry.views, entry.summary, ", ".join(own + ["cover"] * ("weights" in entry.options))])
    show_table(["selector", "views", "what it does", "options"], rows)
    say(f"\ncover options: {', '.join(COVER)}")
    for alias, name in ALIASES.items():
        say(f"{alias} is another name of {name}")
