"""`fedecado dashboard`, and the setting that has a coordinator serve the page."""

from pathlib import Path

import pytest
from processes import Processes
from pydantic import ValidationError

from fedecado.cli.main import main
from fedecado.common.sections import ObserveSection


def test_a_folder_without_results_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(tmp_path)]) == 1
    assert f"no results.json in {tmp_path}" in capsys.readouterr().err


def test_an_address_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(tmp_path), "--bind", "8080"]) == 2
    assert "must be HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("bind", ["127.0.0.1:8080", "0.0.0.0:0", "[::1]:8080", "localhost:80", None])
def test_the_page_can_be_bound_anywhere_or_nowhere(bind: str | None) -> None:
    assert ObserveSection(bind=bind).bind == bind


@pytest.mark.parametrize("bind", ["8080", ":8080", "localhost", "http://localhost:80", "::1:80", "a b:1"])
def test_other_addresses_are_refused(bind: str) -> None:
    with pytest.raises(ValidationError):
        ObserveSection(bind=bind)


def test_a_page_beyond_this_machine_has_to_be_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text('{"history": [], "ended": "", "seconds": 0}')
    assert main(["dashboard", str(tmp_path), "--bind", "0.0.0.0:0"]) == 2
    assert "say --public" in capsys.readouterr().err


async def test_a_coordinator_says_where_its_page_is(processes: Processes) -> None:
    coordinator, _ = await processes.coordinator("--observe-bind", "127.0.0.1:0")
    assert "metrics on http://127.0.0.1:" in await coordinator.says("dashboard on http://127.0.0.1:")
