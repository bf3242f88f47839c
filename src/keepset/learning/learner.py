"""The learners by name."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace

from ..checks import check_choice, own_function
from .er import er
from .er_ace import er_ace
from .finetune import finetune
from .mir import mir
from .star import star
from .step import Batch, Gradients, Learner, LearnerSettings, masked

__all__ = ["LEARNERS", "Batch", "Gradients", "Learner", "LearnerSettings", "learner", "masked", "unused_settings"]

LEARNERS: dict[str, str] = {
    "finetune": "the new images alone, nothing replayed: the lower bound",
    "joint": "all images so far in every episode: the upper bound",
    "er": "experience replay: new and memory in one loss",
    "er-ace": "ER in which new images compete only with the classes of their own minibatch",
    "mir": "ER that replays what a step on the new images would harm most",
    "er-star": "ER, kept steady on memory under the worst small move of the weights",
    "er-ace-star": "ER-ACE with STAR",
    "mir-star": "MIR with STAR",
}

RATES = {"er-ace": 0.01, "er-star": 0.01, "er-ace-star": 0.01, "mir-star": 0.01}
OTHER_RATE = 0.1


def learner(name: str, settings: LearnerSettings | None = None) -> Learner:
    """The learner of that name: one of `LEARNERS`, or `module:function`, a function of yours, settings -> Learner.

    Either with `-star` appended.

    >>> learner("er-ace-star").draws, learner("mir").rate
    ((10, 10), 0.1)
    """
    settings = settings or LearnerSettings()
    if _is_own(name):
        wrapped = _own(name.removesuffix("-star"), settings)
    else:
        check_choice("learner", name, LEARNERS)
        rate = settings.rate if settings.rate is not None else RATES.get(name, OTHER_RATE)
        wrapped = _plain(name.removesuffix("-star"), settings, rate)
    return star(wrapped, settings) if name.endswith("-star") else wrapped


def unused_settings(name: str) -> tuple[str, ...]:
    """The settings that are not read by the learner of that name, and do not make a run of it another run.

    >>> unused_settings("mir-star")
    ()
    """
    if _is_own(name):
        return ()
    replays = name not in ("finetune", "joint")
    mine = {"star": name.endswith("-star"), "mir": name.startswith("mir"), "memory": replays}
    return tuple(field.name for field in fields(LearnerSettings) if not mine.get(field.name.partition("_")[0], True))


def _is_own(name: str) -> bool:
    """Whether it is a function of the caller's."""
    return ":" in name


def _own(name: str, settings: LearnerSettings) -> Learner:
    function = own_function("learner", name, LEARNERS)
    try:
        inspect.signature(function).bind(settings)
    except TypeError as error:
        raise ValueError(f"learner {name!r} must be a function of the settings, LearnerSettings: {error}") from None
    made = function(settings)
    if not isinstance(made, Learner):
        raise ValueError(f"learner {name!r} must return a keepset.learning.Learner, got {type(made).__name__}")
    rate = made.rate if settings.rate is None else settings.rate
    return replace(made, name=name, rate=rate, draws=tuple(made.draws))


def _plain(name: str, settings: LearnerSettings, rate: float) -> Learner:
    replay = (settings.memory_batch,)
    plain = {
        "finetune": Learner("finetune", finetune, (), rate),
        "joint": Learner("joint", finetune, (), rate, joint=True),
        "er": Learner("er", er, replay, rate, stackable=True),
        "er-ace": Learner("er-ace", er_ace, replay, rate, holds_new_classes=True, stackable=True),
        "mir": Learner("mir", mir(settings.memory_batch, rate), (settings.mir_candidates,), rate),
    }
    return replace(plain[name], shares_first=True)
