"""Runs are determined by their seed, and a recorded trace replays to the bit."""

from pathlib import Path
from typing import Any

import pytest

from fedecado.common.errors import DataError
from fedecado.server.algorithms import AlgorithmName, make_algorithm
from fedecado.server.federation import Federation
from fedecado.server.rounds import DeadlinePassed, Disconnected, Engine, Enrolled, Rules, UpdateArrived
from fedecado.simulator import History, Simulation, Trace, draw_fleet
from fedecado.simulator.quadratics import Quadratics

N, ROUNDS = 12, 40
MODES: dict[str, dict[str, Any]] = {
    "rounds": {"mode": "rounds", "active": 6, "deadline": 15.0},
    "stream": {"mode": "stream", "active": 8, "target_updates": 4, "deadline": 10.0},
    "leases": {"mode": "rounds", "active": 6, "lease": 12.0},
}


def play(
    mode: str, *, algorithm: AlgorithmName = "fedecado", seed: int = 3, replay: Trace | None = None
) -> tuple[Simulation, list[bytes], History]:
    """One run with dropouts, with the centre of every round as bytes."""
    quadratics = Quadratics(N, seed=seed)
    fleet = draw_fleet(N, (0.001, 0.01), (5, 30), speed_spread=0.7, dropout=0.2, seed=seed)
    rules = Rules(max_rounds=ROUNDS, seed=seed, min_clients=N // 2, **MODES[mode])
    federation = Federation(Engine(rules), make_algorithm(algorithm), quadratics.layout, quadratics.initial())
    centres: list[bytes] = []
    simulation = Simulation(
        federation,
        quadratics,
        fleet,
        evaluate_every=5,
        replay=replay,
        watch=lambda record: centres.append(federation.central.tobytes()),
    )
    return simulation, centres, simulation.run()


def without_seconds(history: History) -> str:
    history.seconds, history.walls = 0.0, []
    return history.to_json()


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_run_to_the_bit(mode: str) -> None:
    _, one, first = play(mode)
    _, other, second = play(mode)
    assert len(one) == ROUNDS
    assert one == other
    assert without_seconds(first) == without_seconds(second)


def test_another_seed_gives_another_run() -> None:
    assert play("rounds", seed=3)[1] != play("rounds", seed=4)[1]


@pytest.mark.parametrize("mode", MODES)
def test_a_saved_trace_replays_to_the_bit(mode: str, tmp_path: Path) -> None:
    recorded, centres, history = play(mode)
    kinds = {type(event) for _, event in recorded.trace}
    assert {Enrolled, Disconnected, UpdateArrived} <= kinds
    path = tmp_path / "traces" / "run.jsonl"
    recorded.trace.save(path)
    loaded = Trace.load(path)
    assert loaded == recorded.trace
    again, replayed, repeated = play(mode, replay=loaded)
    assert replayed == centres
    assert again.trace == recorded.trace
    assert without_seconds(repeated) == without_seconds(history)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["fedavg", "fedbuff", "scaffold"])
def test_a_trace_shows_another_algorithm_the_same_arrivals(mode: str, algorithm: AlgorithmName) -> None:
    recorded, centres, history = play(mode)
    _, others, replayed = play(mode, algorithm=algorithm, replay=recorded.trace)
    assert others != centres

    def arrivals(h: History) -> list[tuple[int, float, int, float]]:
        return [(r.round, r.clock, r.updates, r.staleness) for r in h.rounds]

    assert arrivals(replayed) == arrivals(history)


def test_these_runs_have_deadlines_old_starts_and_dropouts() -> None:
    """Otherwise the replays above would prove little."""
    recorded, _, history = play("stream")
    events = [event for _, event in recorded.trace]
    assert any(isinstance(event, Disconnected) for event in events)
    assert any(isinstance(event, DeadlinePassed) for event in events)
    assert max(record.staleness for record in history.rounds) > 0


GOOD = '{"at": 1.0, "event": "UpdateArrived", "client": "a", "task": 3}'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        "{}",
        '{"event": "UpdateArrived", "client": "a", "task": 3}',
        '{"at": "soon", "event": "UpdateArrived", "client": "a", "task": 3}',
        '{"at": NaN, "event": "UpdateArrived", "client": "a", "task": 3}',
        '{"at": Infinity, "event": "UpdateArrived", "client": "a", "task": 3}',
        '{"at": 0.5, "event": "UpdateArrived", "client": "a", "task": 3}',
        '{"at": 1.0, "event": "Exploded", "client": "a", "task": 3}',
        '{"at": 1.0, "event": ["UpdateArrived"], "client": "a", "task": 3}',
        '{"at": 1.0, "event": "UpdateArrived", "client": "a"}',
        '{"at": 1.0, "event": "UpdateArrived", "client": 5, "task": 3}',
        '{"at": 1.0, "event": "UpdateArrived", "client": "a", "task": "3"}',
        '{"at": 1.0, "event": "UpdateArrived", "client": "a", "task": true}',
        '{"at": 1.0, "event": "UpdateArrived", "client": "a", "task": 3, "more": 1}',
        '{"at": 1.0, "event": "Enrolled", "client": "a", "samples": 3, "tasks": 4}',
        '{"at": 1.0, "event": "Enrolled", "client": "a", "samples": 3, "tasks": ["x"]}',
    ],
)
def test_a_malformed_trace_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2: not a trace event"):
        Trace.load(path)


def test_a_trace_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the trace"):
        Trace.load(tmp_path / "missing.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot read the trace"):
        Trace.load(tmp_path / "binary.jsonl")


def test_a_trace_of_other_clients_is_refused() -> None:
    trace = Trace()
    trace.add(0.0, Enrolled("stranger", 5))
    with pytest.raises(DataError, match="stranger"):
        play("rounds", replay=trace)
