"""Experiments as files: layers, sizes, grids, and mistakes explained."""

from pathlib import Path
from typing import Any

import pytest

from fedecado.common.errors import ConfigError
from fedecado.experiments.cells import settings_of
from fedecado.experiments.plan import Experiment, flat
from fedecado.experiments.presets import PRESETS, preset
from fedecado.experiments.tuning import check_budgets

CONTENT: dict[str, Any] = {
    "seeds": 2,
    "target": "accuracy>=0.8",
    "base": {"rounds": {"max_rounds": 9}, "training": {"rate": 0.1}},
    "settings": {"easy": {}, "hard": {"training": {"rate": 0.2}}},
    "algorithms": {"fedavg": {}, "careful": {"run": {"algorithm": "fedecado"}, "training": {"rate": 0.3}}},
    "tune": {"fedavg": {"training": {"rate": [0.1, 0.2]}, "algorithm": {"mu": [0, 1, 2]}}},
    "sizes": {"small": {"seeds": [7], "base": {"rounds": {"max_rounds": 3}}, "settings": {"one": {}}}},
}


def test_the_grid_is_every_seed_setting_and_algorithm_once() -> None:
    cells = list(Experiment.parse(CONTENT, "x").cells({}))
    assert len({cell.name for cell in cells}) == len(cells) == 2 * 2 * 2
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4


def test_later_layers_win_and_the_user_s_values_win_over_all() -> None:
    experiment = Experiment.parse(CONTENT, "x")
    rates = {(c.setting, c.algorithm): c.values["training.rate"] for c in experiment.cells({})}
    assert rates == {
        ("easy", "fedavg"): 0.1,
        ("hard", "fedavg"): 0.2,
        ("easy", "careful"): 0.3,
        ("hard", "careful"): 0.3,
    }
    assert {c.values["training.rate"] for c in experiment.cells({"training.rate": 0.9})} == {0.9}


def test_a_variant_runs_the_algorithm_it_names() -> None:
    cell = next(c for c in Experiment.parse(CONTENT, "x").cells({}) if c.algorithm == "careful")
    assert settings_of(cell).run.algorithm == "fedecado"


def test_a_size_lays_its_base_over_the_file_s_and_replaces_the_rest() -> None:
    small = Experiment.parse(CONTENT, "x", "small")
    assert small.seeds == (7,)
    assert list(small.settings) == ["one"]
    assert small.base == {"rounds.max_rounds": 3, "training.rate": 0.1}


def test_a_grid_is_every_combination_of_its_values() -> None:
    points = Experiment.parse(CONTENT, "x").grids["fedavg"]
    assert len(points) == 6
    assert {"training.rate": 0.2, "algorithm.mu": 1} in points


def test_nested_tables_become_dotted_names() -> None:
    assert flat({"a": {"b": {"c": 1}}, "d": [2]}) == {"a.b.c": 1, "d": [2]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algoritms": {}}, "algorithms"),
        ({"seeds": 0}, "number of seeds"),
        ({"algorithms": {"fedevg": {}}}, "fedavg"),
        ({"tune": {"fedavg": {"training": {"rate": 0.1}}}}, "list of values"),
        ({"target": "high"}, "accuracy>=0.9"),
    ],
)
def test_mistakes_in_a_file_are_explained(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Experiment.parse({**CONTENT, **change}, "x")


def test_a_size_that_is_not_there_and_a_file_that_is_none_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has: small"):
        Experiment.parse(CONTENT, "x", "huge")
    (tmp_path / "broken.toml").write_text("= 3")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        Experiment.read(tmp_path / "broken.toml")


def test_a_wrong_setting_names_its_cell() -> None:
    experiment = Experiment.parse({"base": {"rounds": {"max_round": 1}}, "algorithms": {"fedavg": {}}}, "x")
    with pytest.raises(ConfigError, match=r"all--fedavg--0.*--rounds"):
        settings_of(next(experiment.cells({})))


@pytest.mark.parametrize("size", [None, "small", "tiny"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_tunes_fairly_at_every_size(name: str, size: str | None) -> None:
    experiment = preset(name, size)
    assert check_budgets(experiment) == (2 if size == "small" else 6)
    assert "fedecado" in experiment.algorithms
    for cell in experiment.cells({}):
        settings = settings_of(cell)
        assert settings.training.loss_samples == 0
        assert settings.rounds.max_rounds is not None
    for grid in experiment.grids.values():
        for point in grid:
            cell = next(iter(experiment.cells(dict(point))))
            settings_of(cell)


def test_an_unknown_preset_is_explained() -> None:
    with pytest.raises(ConfigError, match="noniid"):
        preset("nonid")
