"""The label distribution of a partition, as numbers and pictures and on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.cli.main import main
from fedecado.experiments.labels import Distribution

COUNTS = st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=8)


def test_clients_alike_have_no_skew_and_clients_with_nothing_in_common_have_much() -> None:
    assert Distribution(np.full((5, 10), 7)).skew() == 0
    apart = Distribution(np.diag([10] * 10))
    assert apart.skew() == pytest.approx(0.9)
    np.testing.assert_allclose(apart.effective_labels(), 1)
    np.testing.assert_allclose(Distribution(np.full((2, 10), 3)).effective_labels(), 10)


@given(COUNTS)
def test_skew_and_labels_in_effect_stay_in_range(rows: list[list[int]]) -> None:
    counts = np.asarray(rows) + 1
    found = Distribution(counts)
    assert 0 <= found.skew() <= 1
    assert ((found.effective_labels() >= 1 - 1e-9) & (found.effective_labels() <= 4 + 1e-9)).all()


def test_the_command_counts_every_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "--clients", "25", "--task-arg", "alpha=0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert np.sum(told["counts"]) == 1438
    assert np.shape(told["counts"]) == (25, 10)
    assert 0.3 < told["skew"] < 0.9


def test_the_command_prints_a_table_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "labels.svg"
    assert main(["partition", "--clients", "25", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "and 5 more clients" in out
    assert "skew 0." in out
    assert "<svg" in picture.read_text()


def test_what_has_no_labels_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["partition", "--task", "quadratics"]) == 2
    assert "no labels" in capsys.readouterr().err
    assert main(["partition", "--plot", str(tmp_path / "labels.xyz")]) == 2
    assert ".png" in capsys.readouterr().err
