"""keepset cache: the views that are kept, and how to be rid of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .console import say, show_table, warn

if TYPE_CHECKING:
    from ..views.cache import Listed

cache = typer.Typer(rich_markup_mode=None)
Folder = Annotated[str, typer.Option(help="The cache; else $KEEPSET_CACHE, or where this system keeps its caches.")]


@cache.callback()
def _cache() -> None:
    """Look at the views that are kept, and clear them.

    \b
    Examples:
      keepset cache ls
      keepset cache clear --unfinished
    """


@cache.command("ls")
def ls(folder: Folder = "") -> None:
    """List the views that are kept, the newest first, and those that were broken off.

    \b
    Examples:
      keepset cache ls
      keepset cache ls --folder /scratch/views
    """
    from ..views.cache import Cache

    place = Cache(folder)
    entries = place.entries()
    if not entries:
        say(f"no views in {place.folder}; they come with keepset encode and keepset run")
        return
    heads = ["entry", "encoder", "images", "d", "epochs", "size", "made (UTC)"]
    show_table(heads, [_row(entry) for entry in entries], right=["d", "epochs", "size"])
    say(f"\n{_counted(entries)} in {place.folder}")


@cache.command("clear")
def clear(
    entry: Annotated[list[str] | None, typer.Argument(metavar="[ENTRY]...", help="Keys or their beginnings.")] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Only what was broken off.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    folder: Folder = "",
) -> None:
    """Remove views from the cache: all, the entries named, or those that were broken off.

    \b
    Examples:
      keepset cache clear
      keepset cache clear 3f9c 07ab --yes
      keepset cache clear --unfinished
    """
    from ..views.cache import Cache

    place = Cache(folder)
    listed = place.entries()
    keys = [_key(start, [each.key for each in listed]) for start in entry or []]
    meant = [each for each in listed if not keys or each.key in keys]
    meant = [each for each in meant if not unfinished or each.state == "unfinished"]
    if not meant:
        say(f"nothing to clear in {place.folder}")
        return
    if not yes and not _agreed(f"Remove {_counted(meant)} from {place.folder}?"):
        say("nothing removed")
        return
    cleared = place.clear([each.key for each in meant], unfinished)
    for key in cleared.held:
        warn(f"{key} is just being made by another process and was left alone")
    say(f"{_entries(cleared.count)} removed, {_size(cleared.size)} freed")


def _agreed(question: str) -> bool:
    """The answer; it may come through a pipe, but come it must."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        warn("")
        raise ValueError("nobody is there to answer, and nothing was removed; say --yes to remove them") from None


def _key(start: str, keys: Sequence[str]) -> str:
    """The one key that begins so."""
    from ..checks import nearest_name

    found = [key for key in keys if key.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"entry {start!r} is the beginning of {len(found)}: {', '.join(found)}; write more of it")
    # compared at its own length, so that one wrong digit of a short beginning is still close
    short = {key[: len(start)]: key for key in keys}
    hint = f"{nearest_name(start, short)} see keepset cache ls" if short else "the cache is empty"
    raise ValueError(f"unknown entry {start!r}; {hint}")


def _row(entry: Listed) -> list[str]:
    shape = "×".join(map(str, entry.shape))
    epochs = "" if entry.epochs is None else str(entry.epochs)
    made = entry.made[:16].replace("T", " ") if entry.state == "whole" else entry.state
    images = f"{entry.count} of {shape}" if entry.count else ""
    return [entry.key[:12], entry.encoder, images, str(entry.d or ""), epochs, _size(entry.size), made]


def _counted(entries: Sequence[Listed]) -> str:
    return f"{_entries(len(entries))}, {_size(sum(entry.size for entry in entries))}"


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count} entries"


def _size(count: float) -> str:
    """Bytes, in the unit that leaves one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
