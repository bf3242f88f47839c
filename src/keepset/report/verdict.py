"""Does a second view add anything? A sentence made from the numbers of a diagnosis, by a stated rule."""

from __future__ import annotations

from .findings import Diagnosis, Pair, Pool, View

SAME, UNRELATED = 0.7, 0.05  # shared neighbours, counted from chance (0) to all (1)
UNLIKE = 1.1  # a ratio of effective ranks that is worth a word


def verdict(found: Diagnosis) -> list[str]:
    """A sentence for each view besides the first, from the medians over the classes (or from all points).

    The neighbours that two views share are put on a scale where 0 is chance and 1 is all of them,
    (shared − chance) / (1 − chance). From SAME on the second view adds little; up to UNRELATED it has nothing to do
    with the first, which new knowledge and noise have in common; between, it adds something of its own. The second
    view is called more or less even where the effective ranks differ by the factor UNLIKE.
    """
    typical = found.typical
    return [_sentence(typical, pair) for pair in typical.pairs]


def agreement(pair: Pair) -> float | None:
    """0 where neighbours are shared as by chance, 1 where all are."""
    if pair.overlap is None or pair.chance is None or pair.chance == 1:
        return None
    return (pair.overlap - pair.chance) / (1 - pair.chance)


def _sentence(pool: Pool, pair: Pair) -> str:
    views = {view.name: view for view in pool.views}
    level = agreement(pair)
    if level is None or pair.overlap is None or pair.chance is None:
        return (
            f"{pair.second} beside {pair.first}: too few points, or too many copies, to tell whether it adds anything"
        )
    shared = f"{100 * pair.overlap:.0f} % of the neighbours are shared ({100 * pair.chance:.0f} % by chance)"
    return (
        f"{pair.second} beside {pair.first}: {shared}{_evenness(views[pair.first], views[pair.second])}; {_so(level)}"
    )


def _evenness(first: View, second: View) -> str:
    """How much more evenly the second view spreads a class, by the effective ranks."""
    if first.effective_rank is None or second.effective_rank is None:
        return ""
    ratio = second.effective_rank / first.effective_rank
    word = "about as evenly as"
    if not 1 / UNLIKE < ratio < UNLIKE:
        word = "more evenly than" if ratio > 1 else "less evenly than"
    ranks = _told_apart(second.effective_rank, first.effective_rank, word != "about as evenly as")
    return f", and it spreads the points {word} {first.name} (effective rank {ranks})"


def _told_apart(second: float, first: float, apart: bool) -> str:
    """Two ranks; with a decimal where they are apart and would look the same (by UNLIKE, a tenth at least)."""
    digits = 1 if apart and f"{second:.0f}" == f"{first:.0f}" else 0
    return f"{second:.{digits}f} against {first:.{digits}f}"


def _so(level: float) -> str:
    if level >= SAME:
        return "it adds little"
    if level <= UNRELATED:
        return "it is unrelated to the first: wholly new, or noise"
    return "it adds something of its own; whether that helps, a run must tell"
