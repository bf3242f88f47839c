"""What changes a run's numbers, and the name of its folder, which is a hash of that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from ..data import content
from ..learning.learner import unused_settings
from ..learning.trainer import TrainSettings
from ..views import ENCODERS
from .config import ModelSettings, RunConfig, plain_values

NUMBERS = 3  # raised with each changelog entry under Numbers: results of different numbers never share a folder
STAR_NUMBERS = 4  # raised with an entry that concerns STAR alone, so that runs without it stay what they are


def identity(config: RunConfig) -> dict[str, Any]:
    """What changes the numbers of a run, in plain values."""
    plain = plain_values(config)
    del plain["cache"], plain["keep_views"]
    for name, encoder in ENCODERS.items():
        del plain[name]
        if name in config.used_views():
            plain[name] = dict(encoder.recipe(getattr(config, name), torch.device(config.device)).settings)
    plain["views"] = list(config.used_views())
    plain["selector"] = config.method_and_view()[0]
    del plain["data"]["folder"]
    plain["data"]["name"] = content(config.data)
    plain["train"] = _training(config)
    for name in ("initialisation", "head"):  # runs did not know them before there was a choice
        if plain["model"][name] == getattr(ModelSettings, name):
            del plain["model"][name]
    for name in unused_settings(config.learner):
        del plain["learning"][name]
    if config.learner.endswith("-star"):
        plain["learning"]["star_numbers"] = STAR_NUMBERS
    plain["numbers"] = NUMBERS
    return json.loads(json.dumps(plain, default=str))  # type: ignore[no-any-return]


def _training(config: RunConfig) -> dict[str, Any]:
    """What changes the numbers of the training: without settings that runs did not know before there was a choice."""
    plain = plain_values(config.train)
    if not config.train.stacked:
        del plain["stacked"]
    replays = "memory_batch" not in unused_settings(config.learner)
    if config.train.statistics == TrainSettings.statistics or not replays:
        del plain["statistics"]
    if config.train.decay_at < 0.5:  # at first the rate decayed only once
        plain["decays"] = "again"
    return plain  # type: ignore[no-any-return]


def run_hash(config: RunConfig) -> str:
    """The name of the run's folder."""
    return hash_of(identity(config))


def hash_of(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
