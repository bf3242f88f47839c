"""keepset ls: what there is to choose from."""

from __future__ import annotations

from .console import say, show_table


def ls() -> None:
    """List the selectors with their options, the learners, the views and the data sets.

    \b
    Example:
      keepset ls
    """
    from ..data import DATASETS
    from ..learning import LEARNERS
    from ..selection.table import ALIASES, COVER, SELECTORS
    from ..views import VIEWS

    rows = []
    for name, entry in SELECTORS.items():
        own = [option for option in entry.options if option not in COVER]
        rows.append([name, entry.views, entry.summary, ", ".join(own + ["cover"] * ("weights" in entry.options))])
    rows.append(["module:function", "all", "a function of yours", "its own"])
    show_table(["selector", "views", "what it does", "options"], rows)
    say(f"\ncover options: {', '.join(COVER)}")
    for alias, name in ALIASES.items():
        say(f"{alias} is another name of {name}")
    say("")
    learners = [[name, summary] for name, summary in LEARNERS.items()]
    learners.append(["module:function", "a function of yours, settings to a Learner"])
    show_table(["learner", "what it does"], learners)
    say("")
    views = [[name, summary] for name, summary in VIEWS.items()]
    show_table(["view", "what it is"], [*views, ["module:function", "a function of yours, images to (n, d)"]])
    say("")
    show_table(["data set", "what it is"], [[name, entry.summary] for name, entry in DATASETS.items()])
