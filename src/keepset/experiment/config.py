"""One typed, frozen config of a run: defaults < a preset < a TOML file < flags."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..checks import check_choice, check_range, nearest_name
from ..data import DataSettings
from ..files import read_toml
from ..learning import LearnerSettings, learner
from ..learning.models import HEADS, MODELS
from ..learning.resnet import INITIALISATIONS
from ..learning.trainer import TrainSettings
from ..selection.api import is_own_selector, own_selector, select_per_class
from ..selection.options import POINT_WEIGHTS, Cover
from ..selection.own import check_own_options
from ..selection.table import ALIASES, SELECTORS, VIEWS
from ..views import ENCODERS, DINOv2Settings, SimCLRSettings, VICRegSettings, check_name
from ..views import PRESETS as VIEW_PRESETS
from ..views.encoders import Settings, without_mirroring

DEVICES = ("cpu", "cuda")
QUOTAS = ("adaptive", "fixed")

TRIED: set[str] = set()  # options that were found right: a grid has hundreds of runs with the same

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"train": {"epochs": 100}},
    "fast": {"train": {"epochs": 10}},
}


@dataclass(frozen=True)
class ModelSettings:
    name: str = "auto"
    """`resnet18`, `small`, or `auto`: small for images below 16 pixels, else the ResNet."""
    width: int = 64
    """The ResNet's first width; 20 is the slim one."""
    initialisation: str = "he"
    """How convolutions begin: `he`, of variance 2 over a map's outputs, or `torch`, of variance 1/3 over its inputs."""
    head: str = "whole"
    """Units of classes to come: `whole`, there from the beginning, or `grown`, drawn anew as their episode begins; in
    both STAR's step is as long as a share of the whole head, with all its units."""

    def __post_init__(self) -> None:
        check_choice("model", self.name, MODELS)
        check_range("width", self.width, 1, 4096, "channels")
        check_choice("initialisation", self.initialisation, INITIALISATIONS)
        check_choice("head", self.head, HEADS)


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run does. What changes its numbers is in `identity`."""

    data: DataSettings = field(default_factory=DataSettings)
    learner: str = "er-ace"
    selector: str = "mers"
    """A selector of `keepset ls`; `maxherding:pixels` reads that view; `module:function` is a function of yours."""
    views: tuple[str, ...] = VIEWS
    """If none are named, `make_config` takes those that the selector was measured with."""
    capacity: int = 50
    quota: str = "adaptive"
    """`adaptive`: the capacity is shared among the classes seen; `fixed`: each class has its share of all classes."""
    seed: int = 0
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the selector: weights, bandwidth and so on."""
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    learning: LearnerSettings = field(default_factory=LearnerSettings)
    simclr: SimCLRSettings = field(default_factory=SimCLRSettings)
    vicreg: VICRegSettings = field(default_factory=VICRegSettings)
    dinov2: DINOv2Settings = field(default_factory=DINOv2Settings)
    cache: str = ""
    """Folder of the views that are made once for all runs; empty: $KEEPSET_CACHE or the system's cache."""
    keep_views: bool | None = None
    """Whether the run's folder keeps the features it selected by; if not given, where they are small."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))  # frozen like the rest
        learner(self.learner, self.learning)
        method, view = self.method_and_view()
        if not is_own_selector(method) and method not in SELECTORS:
            raise ValueError(f"unknown selector {method!r}; {nearest_name(method, [*SELECTORS, *ALIASES])}")
        if view is not None and _reads(method) != "one":
            raise ValueError(f"selector {self.selector!r}: {method} does not read a single view; leave out ':{view}'")
        check_range("capacity", self.capacity, 1, 2**31, "exemplars")
        check_choice("quota", self.quota, QUOTAS)
        check_range("seed", self.seed, 0, 2**62, "a seed")
        check_choice("device", self.device, DEVICES)
        if not self.views or len(set(self.views)) < len(self.views):
            raise ValueError(f"views must name at least one view, and each once, got {', '.join(self.views) or 'none'}")
        for name in self.used_views():
            check_name(name)
        self._check_options(method)

    def _check_options(self, method: str) -> None:
        """Refuse wrong options now, and not after an episode has been trained."""
        if is_own_selector(method):
            check_own_options(own_selector(method), method, self.options)
            return
        known = [name for name in SELECTORS[method].options if name not in ("view", "uncertainty", "on_pick")]
        for option in self.options:
            if option not in known:
                remedy = nearest_name(option, known) if known else "it takes none here"
                raise ValueError(f"unknown option {option!r} for {method}; {remedy}")
        if not isinstance(self.options.get("point_weights", ""), str):
            rules = " or ".join(POINT_WEIGHTS)
            raise ValueError(
                f"point_weights must be a rule in a run, {rules}, since each episode has points of its own, "
                f"got {self.options['point_weights']!r}; set one, or leave it out"
            )
        if self.options:
            cover = Cover(**SELECTORS[method].filled(self.options))
            if cover.neighbours is not None:
                check_range("neighbours", cover.neighbours, 1, 2**31, "the other points of a class")
            cover.given_bandwidths(self.used_views())
            cover.purity_view_of(self.used_views())
            if cover.weight_rule() is None:
                cover.given_weights(self.used_views())
            self._try_options(method)

    def _try_options(self, method: str) -> None:
        """The rest of the checks are those of a choice itself: of one of two points in each of two classes."""
        tried = f"{method} {self.used_views()} {sorted(self.options.items())}"
        if tried in TRIED:
            return
        points = torch.tensor([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0], [0.3, 0.8]])
        options = {name: value for name, value in self.options.items() if name != "neighbours"}
        select_per_class(dict.fromkeys(self.used_views(), points), [0, 0, 1, 1], 1, method=method, **options)
        TRIED.add(tried)

    def method_and_view(self) -> tuple[str, str | None]:
        """`maxherding:pixels` -> its two parts; a function of the caller's reads all views."""
        if is_own_selector(self.selector):
            return self.selector, None
        method, _, view = self.selector.partition(":")
        return ALIASES.get(method, method), view or None

    def encoder_settings(self, mirrored: bool) -> dict[str, Settings]:
        """Settings of each encoder; `mirrored`: whether the images may be mirrored."""
        settings: dict[str, Settings] = {name: getattr(self, name) for name in ENCODERS}
        return settings if mirrored else {name: without_mirroring(given) for name, given in settings.items()}

    def used_views(self) -> tuple[str, ...]:
        """The views that the selector reads: others are not made, and do not make a run another run."""
        method, view = self.method_and_view()
        reads = _reads(method)
        if reads == "none":
            return ()
        if reads == "one":
            return (view or self.views[0],)
        return self.views


def _reads(method: str) -> str:
    """Which views: none, one or all."""
    return "all" if is_own_selector(method) else SELECTORS[method].views


def plain_values(settings: Any) -> Any:
    """Settings as nested dictionaries."""
    if dataclasses.is_dataclass(settings):
        return {entry.name: plain_values(getattr(settings, entry.name)) for entry in dataclasses.fields(settings)}
    return dict(settings) if isinstance(settings, Mapping) else settings


def make_config(
    preset: str | None = None, file: str | Path | None = None, flags: Mapping[str, Any] | None = None
) -> RunConfig:
    """Defaults, then a preset, then a TOML file, then flags (nested mappings); the later wins.

    `view_preset` among them is a preset of the encoders: it comes before what is set for them one by one.
    """
    try:
        from pydantic import ValidationError
    except ImportError:
        raise ValueError("experiments need pydantic; pip install keepset[experiments]") from None
    plain: dict[str, Any] = {}
    if preset is not None:
        check_choice("preset", preset, PRESETS)
        plain = merged(plain, PRESETS[preset])
    if file is not None:
        plain = merged(plain, read_toml(Path(file)))
    plain = merged(plain, flags or {})
    plain = merged(_view_preset(plain.pop("view_preset", "auto"), plain), plain)
    entry = SELECTORS.get(str(plain.get("selector")))
    plain = {"views": VIEWS if entry is None else entry.run_views, **plain}
    _check_keys(plain, RunConfig)
    try:
        return _reader().validate_python(plain)  # type: ignore[no-any-return]
    except ValidationError as error:
        raise ValueError(_in_words(error.errors()[0])) from None


@functools.cache
def _reader() -> Any:
    """Made once: it takes hundreds of times as long as reading a config with it, and a grid has hundreds."""
    from pydantic import TypeAdapter

    return TypeAdapter(RunConfig)


def _view_preset(name: Any, plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """`auto` is the data set's own preset, or else `desk`."""
    if name == "auto":
        data = plain.get("data", {})
        name = data.get("name", DataSettings.name) if isinstance(data, Mapping) else ""
        return own_view_preset(name)
    check_choice("view_preset", name, ["auto", *VIEW_PRESETS])
    return VIEW_PRESETS[name]


def own_view_preset(data: str) -> Mapping[str, Any]:
    """That of the data set, by name."""
    return VIEW_PRESETS["digits" if data == "digits" else "desk"]


def _in_words(error: Mapping[str, Any]) -> str:
    """Our own errors as they are; pydantic's with the setting's name and value."""
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    place = ".".join(str(part) for part in error["loc"] if part not in ("int", "str") and "[" not in str(part))
    return f"{place}: {error['msg']}, got {error['input']!r}"


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings, in which `over` wins."""
    found = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


def _check_keys(plain: Mapping[str, Any], kind: Any, place: str = "") -> None:
    """Unknown keys get the nearest known name, at any depth."""
    known = {entry.name: entry for entry in dataclasses.fields(kind)}
    refuse_unknown(plain, known, place)
    for key, value in plain.items():
        if isinstance(value, bool) and "bool" not in str(known[key].type):
            raise ValueError(f"{place}{key} must not be true or false, got {value}")
        default = known[key].default_factory
        if isinstance(value, Mapping) and dataclasses.is_dataclass(default):
            _check_keys(value, default, f"{place}{key}.")


def refuse_unknown(plain: Iterable[str], known: Iterable[str], place: str) -> None:
    known = list(known)
    for key in plain:
        if key not in known:
            raise ValueError(f"unknown setting {place + key!r}; {nearest_name(key, known)}")
