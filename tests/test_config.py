"""Settings: defaults < preset < TOML < flags, and what names a run's folder."""

from pathlib import Path
from typing import Any

import pytest

from keepset.experiment.config import make_config
from keepset.experiment.identity import identity, run_hash


def test_make_config__the_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('capacity = 7\nlearner = "er"\n[train]\nepochs = 3\n', encoding="utf-8")
    config = make_config("paper", file, {"capacity": 9})
    assert (config.capacity, config.learner, config.train.epochs) == (9, "er", 3)
    assert make_config("paper").train.epochs == 100
    assert make_config("fast").train.epochs == 10
    assert make_config("fast").train.batch == make_config("paper").train.batch == 10


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"capcity": 5}, r"unknown setting 'capcity'; did you mean 'capacity'\?"),
        ({"train": {"epoch": 5}}, r"unknown setting 'train.epoch'; did you mean 'epochs'\?"),
        ({"capacity": 0}, "capacity must be in 1"),
        ({"capacity": "many"}, "capacity"),
        ({"train": {"epochs": 0}}, "epochs must be in 1"),
        ({"train": {"precision": "half"}}, "precision"),
        ({"learner": "er-aces"}, r"did you mean 'er-ace'\?"),
        ({"selector": "merz"}, r"did you mean 'mers'\?"),
        ({"selector": "mers:pixels"}, "does not read a single view"),
        ({"selector": "maxherding:pixel"}, r"unknown view 'pixel'; did you mean 'pixels'\?"),
        ({"views": ["supervised", "pixles"]}, r"did you mean 'pixels'\?"),
        ({"options": {"bandwith": 1}}, r"did you mean 'bandwidth'\?"),
        ({"options": {"weights": "foo"}}, "unknown weights 'foo'"),
        ({"options": {"weights": [1.0]}}, "weights must be one number a view"),
        ({"selector": "rainbow", "options": {"uncertainty": 3}}, "unknown option 'uncertainty'"),
        ({"options": {"point_weights": [1.0, 2.0]}}, r"must be a rule in a run, purity or density.*got \[1.0, 2.0\]"),
        ({"options": {"point_weights": 3}}, "point_weights must be a rule in a run"),
        ({"options": {"point_weights": "pure"}}, r"unknown point_weights 'pure'; did you mean 'purity'\?"),
        ({"options": {"point_weights": "density", "point_power": -1}}, "point_power must be a positive number, got -1"),
        ({"options": {"point_power": 4}}, "point_power=4 is for point_weights 'purity' or 'density'"),
        ({"options": {"purity_view": "simclr"}}, "purity_view='simclr' is for point_weights 'purity'"),
        ({"options": {"point_weights": "purity", "purity_view": "vicreg"}}, "unknown purity_view 'vicreg'"),
        ({"options": {"point_weights": "purity", "purity_view": 2}}, r"purity_view must be in 0\.\.1"),
        (
            {"selector": "maxherding", "options": {"point_weights": "purity", "purity_view": "simclr"}},
            "unknown purity_view 'simclr'; choose from supervised",
        ),
        ({"selector": "herding", "options": {"point_weights": "purity"}}, "unknown option 'point_weights' for herding"),
        ({"options": {"bandwidth_scale": 0}}, "bandwidth_scale must be a positive number, got 0"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"model": {"initialisation": "kaiming"}}, "unknown initialisation 'kaiming'"),
        ({"model": {"head": "grow"}}, r"unknown head 'grow'; did you mean 'grown'\?"),
        ({"seed": -1}, "seed must be in 0"),
        ({"capacity": True}, "capacity must not be true or false"),
    ],
)
def test_make_config__wrong_settings_name_the_nearest(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(flags=flags)


def test_make_config__unknown_preset_missing_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown preset 'papper'; did you mean 'paper'\?"):
        make_config("papper")
    with pytest.raises(ValueError, match="cannot read"):
        make_config(file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("capacity = = 3", encoding="utf-8")
    with pytest.raises(ValueError, match="is no TOML"):
        make_config(file=tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"capacity": 51},
        {"learner": "er"},
        {"selector": "maxherding"},
        {"views": ["pixels"]},
        {"train": {"epochs": 3}},
        {"data": {"order": 42}},
        {"device": "cuda"},
        {"train": {"precision": "bfloat16"}},
        {"learning": {"rate": 0.5}},
        {"model": {"width": 20}},
        {"model": {"initialisation": "torch"}},
        {"model": {"head": "grown"}},
        {"data": {"episodes": 2}},
        {"options": {"weights": "equal"}},
        {"options": {"bandwidth_scale": 0.5}},
        {"options": {"point_weights": "purity"}},
        {"options": {"point_weights": "density"}},
        {"views": ["supervised", "simclr", "previous"]},
    ],
    ids=str,
)
def test_run_hash__covers_what_changes_the_numbers(change: dict[str, Any]) -> None:
    assert run_hash(make_config(flags={"device": "cpu", **change})) != run_hash(make_config(flags={"device": "cpu"}))


@pytest.mark.parametrize("name", ["er-ace", "mir", "er-star", "mir-star"])
@pytest.mark.parametrize("setting", ["star_gamma", "star_noise", "mir_candidates", "memory_batch"])
def test_run_hash__settings_of_other_learners_do_not_count(name: str, setting: str) -> None:
    configs = [make_config(flags={"learner": name, "learning": {setting: value}}) for value in (2, 3)]
    read = setting == "memory_batch" or setting.split("_")[0] in name.split("-")
    assert (run_hash(configs[0]) != run_hash(configs[1])) == read


def test_run_hash__a_learner_that_replays_nothing_has_no_memory_batch() -> None:
    configs = [make_config(flags={"learner": "joint", "learning": {"memory_batch": value}}) for value in (2, 3)]
    assert run_hash(configs[0]) == run_hash(configs[1])


def test_run_hash__settings_that_runs_did_not_know_are_left_unsaid_at_their_defaults() -> None:
    said = make_config(flags={"model": {"initialisation": "he", "head": "whole"}, "train": {"statistics": "batch"}})
    assert identity(said)["model"] == {"name": "auto", "width": 64}
    assert run_hash(said) == run_hash(make_config())


def test_run_hash__every_setting_of_a_rule_of_point_weights() -> None:
    rules: list[dict[str, Any]] = [
        {"point_weights": "purity"},
        {"point_weights": "purity", "purity_view": "supervised"},
        {"point_weights": "purity", "point_power": 3},
        {"point_weights": "purity", "bandwidth_scale": 0.5},
        {"point_weights": "density"},
        {"point_weights": "density", "point_power": 4},
    ]
    configs = [make_config(flags={"options": options}) for options in rules]
    assert len({run_hash(config) for config in configs}) == 6
    assert [identity(config)["options"] for config in configs] == rules


def test_run_hash__not_folders_nor_views_that_are_not_read() -> None:
    assert run_hash(make_config(flags={"data": {"folder": "/elsewhere"}})) == run_hash(make_config())
    random = make_config(flags={"selector": "random"})
    assert run_hash(random) == run_hash(make_config(flags={"selector": "random", "views": ["pixels"]}))
    first = make_config(flags={"selector": "maxherding"})
    assert run_hash(first) == run_hash(make_config(flags={"selector": "maxherding:supervised", "views": ["pixels"]}))
    assert run_hash(make_config(flags={"selector": "mers-maxherding"})) == run_hash(make_config())
    assert identity(first)["views"] == ["supervised"]


def with_views(**given: Any) -> str:
    return run_hash(make_config(flags={"device": "cpu", **given}))


@pytest.mark.parametrize(
    "change",
    [
        {"vicreg": {"epochs": 7}},
        {"vicreg": {"augmentation": {"hue": 0.3}}},
        {"dinov2": {"size": 28, "model": "none/of-this-name"}},
        {"simclr": {"compile": False}},
        {"cache": "/elsewhere"},
        {"keep_views": True},
        {"view_preset": "digits"},
    ],
    ids=str,
)
def test_run_hash__not_views_that_are_not_read_nor_where_they_lie(change: dict[str, Any]) -> None:
    assert with_views(**change) == with_views()


@pytest.mark.parametrize(
    "change",
    [
        {"simclr": {"epochs": 7}},
        {"simclr": {"seed": 1}},
        {"simclr": {"augmentation": {"hue": 0.3}}},
        {"simclr": {"precision": "bfloat16"}},
        {"view_preset": "desk"},
    ],
    ids=str,
)
def test_run_hash__covers_the_views_that_are_read(change: dict[str, Any]) -> None:
    assert with_views(**change) != with_views()
    other = {"selector": "maxherding:supervised"}
    assert with_views(**change, **other) == with_views(**other)
    of_vicreg = {"selector": "maxherding:vicreg"}
    assert with_views(vicreg={"epochs": 7}, **of_vicreg) != with_views(**of_vicreg)


def test_run_hash__auto_precision_is_what_it_turns_out_to_be() -> None:
    assert with_views(simclr={"precision": "float32"}) == with_views()


# ---------------------------------------------------------------- settings of the views


def test_view_preset__in_a_file_by_a_flag_and_below_both(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('view_preset = "solo-learn"\n[simclr]\nrate = 0.7\n', encoding="utf-8")
    config = make_config(file=file)
    assert (config.simclr.epochs, config.simclr.rate, config.simclr.clip) == (1000, 0.7, True)
    assert (config.vicreg.epochs, config.vicreg.rate) == (1000, 0.3)
    config = make_config(file=file, flags={"view_preset": "desk", "simclr": {"epochs": 9}})
    assert (config.simclr.epochs, config.simclr.rate, config.simclr.clip) == (9, 0.7, False)
    assert make_config("paper", flags={"view_preset": "desk"}).train.epochs == 100, "another preset is another thing"


def test_view_preset__auto_is_the_data_set_s_own_or_desk() -> None:
    for data in ({}, {"data": {"name": "digits"}}):
        for auto in ({}, {"view_preset": "auto"}):
            found = make_config(flags={**data, **auto})
            assert found.simclr == make_config(flags={"view_preset": "digits"}).simclr
    desk = make_config(flags={"view_preset": "desk"})
    for name in ("cifar100", "photos"):
        found = make_config(flags={"data": {"name": name, "episodes": 2}})
        assert (found.simclr, found.vicreg) == (desk.simclr, desk.vicreg)


@pytest.mark.parametrize("name", ["solo-learn", "desk"])
def test_view_preset__a_folder_called_like_one_does_not_choose_it(name: str) -> None:
    assert make_config(flags={"data": {"name": name, "episodes": 2}}).simclr.epochs == 200


def test_view_settings__nested_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[simclr.augmentation]\nhue = 0.05\ncrop = [0.3, 1.0]\n", encoding="utf-8")
    found = make_config(file=file, flags={"view_preset": "digits"}).simclr
    assert (found.augmentation.hue, found.augmentation.crop) == (0.05, (0.3, 1.0))
    assert found.augmentation.flip == 0.0, "the preset's other values stay"
    assert (found.augmentation.saturation, found.augmentation.blur) == (0.8, 0.0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"view_preset": "solo"}, r"unknown view_preset 'solo'; (did you mean|choose from)"),
        ({"view_preset": "sololearn"}, r"unknown view_preset 'sololearn'; did you mean 'solo-learn'\?"),
        ({"view_preset": 3}, "unknown view_preset 3"),
        ({"view_preset": True}, "unknown view_preset True"),
        ({"view_preset": ["desk"]}, r"unknown view_preset \['desk'\]"),
        ({"simclr": {"epoch": 5}}, r"unknown setting 'simclr.epoch'; did you mean 'epochs'\?"),
        (
            {"simclr": {"augmentation": {"heu": 0.1}}},
            r"unknown setting 'simclr.augmentation.heu'; did you mean 'hue'\?",
        ),
        ({"vicreg": {"augmentation": {"solarize": 0}}}, r"'vicreg.augmentation.solarize'; did you mean 'solarise'\?"),
        ({"vicreg": {"temperature": 1}}, "unknown setting 'vicreg.temperature'"),
        ({"dinov2": {"sizes": 28}}, r"unknown setting 'dinov2.sizes'; did you mean 'size'\?"),
        ({"simclr": {"augmentation": {"hue": 0.7}}}, r"hue must be in 0\.\.0\.5"),
        ({"simclr": {"augmentation": {"crop": [0.5]}}}, "crop"),
        ({"simclr": {"epochs": 0}}, r"epochs must be in 1\.\."),
        ({"simclr": {"epochs": "many"}}, "simclr.epochs"),
        ({"simclr": {"model": "resnet"}}, "unknown model 'resnet'"),
        ({"dinov2": {"size": 30}}, "size must be a multiple of 14"),
        ({"simclr": 3}, "simclr"),
        ({"simclr": {"augmentation": 3}}, "simclr.augmentation"),
        ({"data": {"episodes": True}}, "data.episodes must not be true or false, got True"),
        ({"simclr": {"epochs": True}}, "simclr.epochs must not be true or false, got True"),
        ({"simclr": {"augmentation": {"flip": True}}}, "simclr.augmentation.flip must not be true or false, got True"),
        ({"vicreg": {"rate": False}}, "vicreg.rate must not be true or false, got False"),
        ({"keep_views": "perhaps"}, "keep_views"),
        ({"simclr": {"clip": 3}}, "simclr.clip"),
    ],
    ids=str,
)
def test_view_settings__wrong_ones_name_the_nearest(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(flags=flags)


@pytest.mark.parametrize("selector", ["mers", "maxherding"])
def test_views__none_or_one_twice_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="views must"):
        make_config(flags={"selector": selector, "views": []})
    with pytest.raises(ValueError, match="pixels"):
        make_config(flags={"selector": "mers", "views": ["pixels", "supervised", "pixels"]})


def test_view_settings__true_and_false_where_they_mean_something() -> None:
    given = {"keep_views": True, "simclr": {"clip": True, "compile": False}, "dinov2": {"fetch": True}}
    config = make_config(flags=given)
    assert (config.keep_views, config.simclr.clip, config.simclr.compile, config.dinov2.fetch) == (
        True,
        True,
        False,
        True,
    )
    assert make_config(flags={"keep_views": False}).keep_views is False
    assert make_config().keep_views is None


def test_run_hash__rises_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_hash(make_config())
    monkeypatch.setattr("keepset.experiment.identity.NUMBERS", 99)
    assert run_hash(make_config()) != before


def test_run_config__is_frozen_all_through() -> None:
    config = make_config(flags={"options": {"weights": "equal"}})
    with pytest.raises(AttributeError):
        config.seed = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.options["weights"] = "printed"  # type: ignore[index]


@pytest.mark.parametrize(
    ("selector", "options", "message"),
    [
        ("mers", {"neighbours": 0}, "neighbours must be in 1"),
        ("mers", {"neighbours": -3}, "neighbours must be in 1"),
        ("mers", {"uncovered": "shared"}, "uncovered='shared' is for hard cover"),
        ("maxherding", {"uncovered": "shared"}, "uncovered='shared' is for hard cover"),
        ("probcover", {"search": "stochastic"}, "search='stochastic' is for soft cover"),
        ("mers-probcover", {"search": "stochastic"}, "search='stochastic' is for soft cover"),
        ("mers", {"on_pick": "x"}, "unknown option 'on_pick' for mers"),
    ],
)
def test_options__that_a_choice_would_refuse_are_refused_at_once(selector: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(flags={"selector": selector, "options": options})


def test_views__if_none_are_named_those_that_the_selector_was_measured_with() -> None:
    three = ("supervised", "simclr", "previous")
    assert make_config(flags={"selector": "mers-pure"}).views == three
    assert make_config(flags={"selector": "mers-pure", "views": ["supervised", "pixels"]}).views[1] == "pixels"
    assert make_config().views == make_config(flags={"selector": "mers"}).views == three[:2]
    config = make_config(flags={"selector": "mers-pure", "options": {"purity_view": "previous"}})
    assert config.options == {"purity_view": "previous"}
    with pytest.raises(ValueError, match="unknown purity_view 'vicreg'"):
        make_config(flags={"selector": "mers-pure", "options": {"purity_view": "vicreg"}})


@pytest.mark.parametrize("bandwidth", ["median", "knn", "episode", 0.5, [0.5, 0.4], {"supervised": 0.5, "simclr": 0.4}])
@pytest.mark.parametrize("rule", [{}, {"point_weights": "purity"}, {"point_weights": "density", "point_power": 4.0}])
@pytest.mark.parametrize("selector", ["mers", "mers-probcover"])
def test_options__that_a_choice_takes_are_taken(selector: str, rule: Any, bandwidth: Any) -> None:
    config = make_config(flags={"selector": selector, "options": {"bandwidth": bandwidth, "neighbours": 40, **rule}})
    assert config.options["neighbours"] == 40
