"""`fedecado loadtest`: what is refused before anything is started, and how workers are shared out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.cli.loadtest import LoadSettings, make_plans
from fedecado.cli.main import main
from fedecado.common.sections import LoadSection

TLS = ("--network-tls-ca", "a", "--network-tls-certificate", "b", "--network-tls-key", "c")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--training-time", "soon"), "is no training time"),
        (("--bad-actors", "evil=1"), "no bad actor is called 'evil'"),
        (("--bad-actors", "nan=-1"), "bad_actors"),
        (("--processes", "200"), "200 processes for 100 workers"),
        (("--workers", "900000000"), "raise the limit of open files"),
        (("HOST",), "is no address"),
        (("HOST:1", "--with-tls"), "started here"),
        (("HOST:1", *TLS), "write {id}"),
        (TLS, "--with-tls makes certificates"),
        (("--metrics", "ftp://host"), "metrics"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_started(
    options: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["loadtest", *options]) == 2
    assert words in capsys.readouterr().err


@given(st.integers(1, 200), st.integers(1, 8), st.integers(0, 5), st.integers(0, 5))
def test_every_worker_is_in_one_process_of_one_machine(
    workers: int, processes: int, machine: int, bad: int
) -> None:
    processes, bad = min(processes, workers), min(bad, workers - 1)
    load = LoadSection(workers=workers, processes=processes, machine=machine, bad_actors={"nan": bad})
    plans = make_plans(LoadSettings(loadtest=load), "host:1")
    numbers = [n for plan in plans for n in range(plan.first, plan.first + plan.count)]
    assert numbers == list(range(machine * workers, (machine + 1) * workers))
    assert sum(len(plan.bad) for plan in plans) == bad
    assert all(plan.first <= n < plan.first + plan.count for plan in plans for n in plan.bad)
    assert sum(plan.connect_rate for plan in plans) == pytest.approx(load.connect_rate)
