"""What operators see of a run, and how they pause, resume and stop it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from fedecado.cli import admin
from fedecado.cli.main import main
from fedecado.cli.plain import nbytes, plain, span
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.session_pb2 import ROLE_EVALUATOR, ROLE_TRAINER


@pytest.fixture(autouse=True)
def _quiet_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(admin, "AGAIN_SECONDS", 0.05)
    for name in [name for name in os.environ if name.startswith("FEDECADO_") or name.endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def run(coordinator: Any, moment: Timestamp) -> Any:
    """A coordinator in the middle of a run with three workers."""
    coordinator.status = pb.RunStatus(
        run_id="r-1",
        run_name="demo",
        phase=pb.PHASE_RUNNING,
        algorithm="fedecado",
        mode="rounds",
        started=Timestamp(seconds=moment.seconds - 7500),
        software_version="0.1.0",
        parameters=4810,
        model_version=12,
        rounds_closed=12,
        rounds_total=100,
        open_round=pb.OpenRound(number=13, updates=7, target_updates=10),
        clients=pb.ClientCounts(enrolled=3, connected=2, training=1, evaluators=1),
        waiting_for="round 13: 3 more updates needed",
        latest=pb.ModelMetrics(model_version=12, metrics={"loss": 0.25, "accuracy": 0.9}),
        best=pb.ModelMetrics(model_version=9, metrics={"accuracy": 0.93}),
        updates_accepted=120,
        updates_refused=2,
        bytes_sent=2_500_000,
        store_bytes=7_340_000,
    )
    error = pb.ClientError(
        time=moment, type="ValueError", message="bad\x1b[2J batch", traceback="Traceback:\n\tline 3\n"
    )
    coordinator.workers = [
        pb.Client(
            worker_id="a",
            role=ROLE_TRAINER,
            state=pb.Client.STATE_WORKING,
            device="cuda:0 [A10]",
            samples=1200,
            task=pb.ClientTask(steps_done=1, steps_total=4),
            updates_accepted=12,
            last_window=0.125,
            last_round=12,
        ),
        pb.Client(
            worker_id="b", role=ROLE_TRAINER, state=pb.Client.STATE_OFFLINE, device="cpu", last_error=error
        ),
        pb.Client(worker_id="c", role=ROLE_EVALUATOR, state=pb.Client.STATE_IDLE, device="cpu"),
    ]
    return coordinator


def call(coordinator: Any, *argv: str) -> int:
    return main([*argv, "--coordinator", coordinator.target])


def test_the_picture_tells_all_that_matters_in_plain_text(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(run, "status") == 0
    shown = capsys.readouterr().out
    for words in (
        r"run +demo \(r-1\), fedecado in rounds mode, started 2 h 5 min ago",
        r"phase +running",
        r"round +12 of 100 closed, round 13 has 7 of 10 updates",
        r"now +round 13: 3 more updates needed",
        r"model +version 12, 4,810 parameters, simulated time 0",
        r"latest +accuracy 0.9  loss 0.25  \(version 12\)",
        r"best +accuracy 0.93  \(version 9\)",
        r"clients +3 enrolled, 2 connected, 1 training, 1 evaluator\n",
        r"updates +120 accepted, 2 refused",
        r"traffic +2.5 MB sent, 0 B received",
        r"store +7.3 MB on disk",
        r"a +working 25% +cuda:0 \[A10\] +1,200 +0.125 +█{8} +\d+ +12 +12\n",
        r"b +offline +cpu +0 +- +- +- +0 +ValueError: bad \[2J batch \(\d s ago\)\n",
        r"c +idle \(evaluator\)",
    ):
        assert re.search(words, shown), words
    assert "\x1b" not in shown
    assert not re.search(r" +\n", shown)
    assert "Traceback" not in shown


def test_a_run_that_has_hardly_begun_is_shown_too(
    coordinator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.status = pb.RunStatus(phase=pb.PHASE_WAITING)
    assert call(coordinator, "status") == 0
    assert "0 closed" in capsys.readouterr().out


def test_a_deadline_is_counted_down(run: Any, moment: Timestamp, capsys: pytest.CaptureFixture[str]) -> None:
    run.status.open_round.deadline.seconds = moment.seconds + 90
    call(run, "status")
    assert re.search(r"deadline in 1 min (29|30) s", capsys.readouterr().out)
    run.status.open_round.deadline.seconds = moment.seconds - 90
    call(run, "status")
    assert re.search(r"deadline 1 min \d+ s ago", capsys.readouterr().out)


def test_tracebacks_are_shown_in_full_when_asked_for(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run, "status", "--tracebacks") == 0
    assert "\nTraceback:\n        line 3\n" in capsys.readouterr().out
    del run.workers[1]
    assert call(run, "status", "--tracebacks") == 0
    assert "no worker reports an error" in capsys.readouterr().out


def test_json_keeps_numbers_and_words(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run.status.latest.metrics["loss"] = float("nan")
    assert call(run, "status", "--json") == 0
    content = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert content["status"]["phase"] == "running"
    assert content["status"]["rounds_closed"] == 12
    assert content["status"]["latest"]["metrics"] == {"accuracy": 0.9, "loss": "nan"}
    assert content["status"]["open_round"]["deadline"] is None
    assert content["status"]["started"].endswith("Z")
    assert [client["state"] for client in content["clients"]] == ["working", "offline", "idle"]
    assert content["clients"][0]["role"] == "trainer"
    assert content["clients"][2]["curvature"] is None


def test_a_thousand_clients_are_counted_and_listed_only_on_request(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.workers = [pb.Client(worker_id=f"w{k:04}") for k in range(1000)]
    run.status.clients.enrolled = 1000
    assert call(run, "status") == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^w\d{4}", shown, re.M)) == 20
    assert "and 980 more; --all shows them" in shown
    run.calls.clear()
    assert call(run, "status", "--all") == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^w\d{4}", shown, re.M) == [f"w{k:04}" for k in range(1000)]
    assert [c.after for c in run.calls if isinstance(c, pb.ListClientsRequest)] == ["", "w0499"]


def test_a_terminal_gets_colours(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert call(run, "status") == 0
    assert "\x1b[" in capsys.readouterr().out


def test_an_unreachable_coordinator_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--coordinator", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "fedecado: error: no coordinator answers at 127.0.0.1:1 (Connection refused); check that it runs, "
        "that --coordinator names its host and port, and that no firewall is in between\n"
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "install the same fedecado on both sides"),
        (grpc.StatusCode.UNAUTHENTICATED, "check --tls-certificate"),
        (grpc.StatusCode.FAILED_PRECONDITION, "answers: no such thing"),
    ],
)
def test_refusals_are_explained(
    code: grpc.StatusCode, said: str, coordinator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.refusal = (code, "no such thing")
    for argv in (["status"], ["status", "--watch"], ["pause"]):
        assert call(coordinator, *argv) == 1
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["localhost", "localhost:", ":50051", "host:99999", "http://host:1", "a b:1", ""]
)
def test_no_address_is_misuse(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--coordinator", text]) == 2
    assert "write HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["a.b-c:1", "[::1]:50051", "unix:/run/x.sock", "dns:///host:1", "10.0.0.1:65535"]
)
def test_all_sorts_of_addresses_are_taken(text: str) -> None:
    assert admin.address(text) == text


def test_the_environment_names_the_coordinator(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDECADO_WORKER__COORDINATOR", run.target)
    assert main(["status"]) == 0
    monkeypatch.setenv("FEDECADO_WORKER__COORDINATOR", "nonsense")
    assert main(["status"]) == 2
    assert "nonsense" in capsys.readouterr().err


def at_round(number: int, phase: pb.Phase.ValueType = pb.PHASE_RUNNING) -> pb.RunStatus:
    return pb.RunStatus(phase=phase, rounds_closed=number)


def test_watching_writes_a_line_per_change_and_survives_a_coordinator_that_goes_away(
    coordinator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.streams = [[at_round(1), at_round(2)], [at_round(3, pb.PHASE_FINISHED)]]
    assert call(coordinator, "status", "--watch") == 0
    out, err = capsys.readouterr()
    assert [line.split(";")[:2] for line in out.splitlines()] == [
        ["running", " 1 closed"],
        ["running", " 2 closed"],
        ["finished", " 3 closed"],
    ]
    assert err == (
        f"the coordinator at {coordinator.target} is away (it closed the connection); "
        "trying again, Ctrl-C ends this\n"
    )


def test_watching_finds_a_coordinator_that_was_restarted(coordinator: Any) -> None:
    coordinator.streams = [[at_round(1), None], [at_round(2)]]
    seen = []
    with admin.Admin(coordinator.target) as client:
        watched = client.watch()
        for status in watched:
            seen.append(status)
            if len(seen) == 1:
                coordinator.stop()
            elif isinstance(status, admin.Away):
                coordinator.start()
            else:
                break
    assert [seen[0], seen[-1]] == [at_round(1), at_round(2)]
    assert all(isinstance(status, admin.Away) for status in seen[1:-1])
    assert len(seen) > 2


def test_watching_as_json_gives_an_object_per_line(
    coordinator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.streams = [[at_round(1), at_round(2, pb.PHASE_FINISHED)]]
    assert call(coordinator, "status", "--watch", "--json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["status"]["rounds_closed"] for line in lines] == [1, 2]


def test_watching_on_a_terminal_keeps_the_picture_while_the_coordinator_is_away(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    run.streams = [[run.status], [at_round(99, pb.PHASE_FINISHED)]]
    assert call(run, "status", "--watch") == 0
    shown = capsys.readouterr().out
    assert "3 more updates" in shown
    assert "is away" in shown
    assert "99 closed" in shown


def test_ctrl_c_ends_watching_with_success(coordinator: Any) -> None:
    coordinator.streams = [[at_round(1), None]]
    command = [sys.executable, "-m", "fedecado.cli", "status", "--watch", "--coordinator", coordinator.target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("running")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_pause_resume_and_stop_say_what_they_left(
    coordinator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv, phase in ((["pause"], "paused"), (["resume"], "running"), (["stop"], "stopping")):
        assert call(coordinator, *argv) == 0
        assert capsys.readouterr().out.startswith(f"{phase}; ")
    assert call(coordinator, "stop", "--now", "--reason", "enough") == 0
    pause, _, stop, now = coordinator.calls
    assert pause.reason.startswith("asked for by ")
    assert stop.when == pb.StopRequest.WHEN_AFTER_ROUND
    assert (now.when, now.reason) == (pb.StopRequest.WHEN_NOW, "enough")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (59.4, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (90000, "1 d 1 h")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_sizes_read_well() -> None:
    assert [nbytes(n) for n in (0, 999, 1500, 2.5e9, 7e13)] == ["0 B", "999 B", "1.5 kB", "2.5 GB", "70.0 TB"]


def test_an_enum_value_of_a_newer_coordinator_is_shown_by_number() -> None:
    assert plain(pb.RunStatus(phase=77))["phase"] == "unknown (77)"  # type: ignore[arg-type]  # such a value is the point


def test_no_more_clients_are_asked_for_than_wanted(run: Any) -> None:
    run.workers = [pb.Client(worker_id=f"w{k:04}") for k in range(30)]
    with admin.Admin(run.target) as client:
        assert len(list(client.clients(7))) == 7
    assert [c.limit for c in run.calls] == [7]


def test_drop_ban_and_unban_say_what_they_did(coordinator: Any, capsys: pytest.CaptureFixture[str]) -> None:
    coordinator.workers = [pb.Client(worker_id="w1", banned=True)]
    assert call(coordinator, "ban", "w1", "w9", "--reason", "garbage") == 0
    assert capsys.readouterr().out == "w1 is banned\nw9 is banned (it was never here)\n"
    assert call(coordinator, "unban", "w1") == 0
    assert call(coordinator, "drop", "w1") == 0
    assert capsys.readouterr().out == "w1 may come back\nw1 is dropped\n"
    assert [type(request).__name__.removesuffix("ClientRequest") for request in coordinator.calls] == [
        *("Ban", "Ban", "Unban", "Drop")
    ]
    assert coordinator.calls[0].reason == "garbage"
    assert call(coordinator, "status") == 0
    assert "banned" in capsys.readouterr().out
