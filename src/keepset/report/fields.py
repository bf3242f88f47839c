"""A run's settings as flat fields with short names, and how variants of a selector are told by them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from ..checks import nearest_name
from ..selection.options import Cover
from ..selection.table import ALIASES, PER_POINT, SELECTORS, VIEWS

Value = str | int | float

ABSENT = "–"  # the field means nothing to this run
UNSAID = {"train.statistics": "batch", "model.initialisation": "he", "model.head": "whole"}
"""Settings that runs leave unsaid where they are as they always were."""
SHORT = {"data.name": "dataset", "data.order": "order", "train.epochs": "epochs", "model.width": "width"}


def flat_settings(identity: Mapping[str, Any], episodes: int) -> dict[str, Value]:
    """The identity of a run, less its seed, as flat fields.

    `selector` names the view of a single-view method where it is not the learner's own (`maxherding:simclr`), and
    `method` does not. Options that were left at their defaults are there with those. `variant` is the selector with all
    that was set of it.
    """
    identity = _by_name(identity)
    method, views = str(identity["selector"]), list(identity["views"])
    flat: dict[str, Value] = {f"options.{name}": value for name, value in default_options(method).items()}
    for name, value in _flat("", identity):
        flat[SHORT.get(name, name)] = value
    for name, usual_value in UNSAID.items():
        flat.setdefault(name, usual_value)
    flat["method"], flat["views"], flat["episodes"] = method, "+".join(views) or "none", episodes
    flat["data.episodes"] = _sizes(identity["data"].get("episodes"))
    flat.pop("seed", None)
    flat.pop("train.stacked", None)  # a matter of rounding, like the card; a seed that is there both ways counts once
    reads, usual = "all", VIEWS
    if method in SELECTORS:
        reads, usual = SELECTORS[method].views, SELECTORS[method].run_views
    flat["selector"] = f"{method}:{views[0]}" if reads == "one" and views != ["supervised"] else method
    words = [str(flat["selector"])]
    if reads == "all" and views != list(usual):
        words.append(f"views={flat['views']}")
    words += [f"{name}={_text(value)}" for name, value in set_options(flat).items()]
    flat["variant"] = " ".join(words).replace(",", ";")  # a comma would end it where values are listed
    return flat


def _by_name(identity: Mapping[str, Any]) -> Mapping[str, Any]:
    """A selector with options that make another one of it, under that one's name: `mers` run as `mers-pure` is."""
    own = SELECTORS.get(identity["selector"])
    if own is None:
        return identity
    options = identity.get("options", {})
    for name, entry in SELECTORS.items():
        if entry.place == own.place and entry.defaults and entry.defaults.items() <= own.filled(options).items():
            rest = {option: value for option, value in options.items() if option not in entry.defaults}
            if identity["views"][1:2] == [rest.get("purity_view")]:  # which it looks at anyway
                del rest["purity_view"]
            return {**identity, "selector": name, "options": rest}
    return identity


def _text(value: Value) -> str:
    """The same for 2 and 2.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def variant_name(text: str) -> str:
    """A variant as runs have it: options in order, defaults left out, numbers in short.

    >>> variant_name("mers weights=equal bandwidth=1.0 metric=cosine")
    'mers bandwidth=1 weights=equal'
    """
    head, *words = re.split(r" (?=\w+=)", text.strip())
    method, colon, view = head.partition(":")
    method = ALIASES.get(method, method)
    if method not in SELECTORS:
        if not colon:  # else it may be a function of the caller's
            raise ValueError(f"unknown selector {method!r}; {nearest_name(method, SELECTORS)}")
        return text
    given = dict(word.split("=", 1) for word in words)
    views = given.pop("views", None)
    defaults = default_options(method)
    for name in given:
        if name not in defaults:
            raise ValueError(f"{method} has no option {name!r}; {nearest_name(name, [*defaults, 'views'])}")
    told = {name: _shortened(given[name]) for name in sorted(given)}
    told = {name: value for name, value in told.items() if value != _text(defaults[name])}
    if views is not None and views != "+".join(SELECTORS[method].run_views):
        told = {"views": views, **told}
    return " ".join([method + colon + view, *(f"{name}={value}" for name, value in told.items())])


def _shortened(value: str) -> str:
    try:
        return _text(float(value))
    except ValueError:
        return value


def set_options(settings: Mapping[str, Value]) -> dict[str, Value]:
    """The options of a run that are not at their defaults, by their names."""
    defaults = default_options(str(settings.get("method")))
    given = {name.removeprefix("options."): settings[name] for name in sorted(settings) if name.startswith("options.")}
    return {name: value for name, value in given.items() if value != defaults.get(name)}


def _sizes(episodes: Any) -> Value:
    """The classes of each episode where these are not equally many: as many episodes are another experiment then."""
    return plain_value(episodes) if isinstance(episodes, list) and len(set(episodes)) > 1 else "equal"


@functools.cache
def default_options(method: str) -> Mapping[str, Value]:
    """The options that a selector reads in a run, as it reads them if nothing is said; but for those in which it
    differs from the others, which its name tells."""
    if method not in SELECTORS:
        return {}
    defaults = {entry.name: entry.default for entry in fields(Cover) if entry.name not in SELECTORS[method].defaults}
    known = [name for name in SELECTORS[method].options if name in defaults]
    return {name: "none" if name in PER_POINT else plain_value(defaults[name]) for name in known}


def _flat(place: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            if place == "options.":
                yield place + name, plain_value(value)
            else:
                yield from _flat(f"{place}{name}.", value)
        else:
            yield place + name, plain_value(value)


def plain_value(value: Any) -> Value:
    """A setting as a number or a text without commas."""
    if type(value) in (str, int, float):
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "auto"
    if isinstance(value, Mapping):
        return " ".join(f"{name}:{part}" for name, part in value.items())
    return " ".join(map(str, value))


def counted(number: Value, one: str) -> str:
    """A number with its noun.

    >>> counted(1, "epoch"), counted(10, "epoch")
    ('1 epoch', '10 epochs')
    """
    return f"{number} {one if number == 1 else one + 's'}"


def field_name(name: str, known: Iterable[str]) -> str:
    """A field by its whole name, or by the end of a dotted one where that is enough: `weights`."""
    known = list(known)
    if name in known:
        return name
    ends = [each for each in known if each.endswith(f".{name}")]
    if len(ends) > 1:
        raise ValueError(f"the field {name!r} may be {' or '.join(sorted(ends))}; write the whole name")
    if not ends:
        plain = [each for each in known if "." not in each or each.startswith("options.")]
        raise ValueError(f"unknown field {name!r}; {nearest_name(name, {*plain, *(e.split('.')[-1] for e in plain)})}")
    return ends[0]
