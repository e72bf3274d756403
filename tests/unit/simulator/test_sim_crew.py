"""Helper processes change nothing but the time: same bits, same failures, and nobody is left behind."""

import multiprocessing
import os
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedecado.common.errors import FedecadoError, TaskError
from fedecado.server.algorithms import make_algorithm
from fedecado.server.federation import Federation
from fedecado.server.rounds import Engine, Rules
from fedecado.simulator import Fleet, Profile, Simulation, draw_fleet
from fedecado.simulator.crew import Crew, Helpers
from fedecado.simulator.quadratics import Quadratics
from fedecado.simulator.staff import Staff

N = 6
MAKE = partial(Quadratics, N, seed=1)


def simulation(crew: Crew | None, fleet: Fleet, **rules: Any) -> Simulation:
    work = MAKE()
    engine = Engine(Rules(**{"min_clients": N, "max_rounds": 6, **rules}))
    federation = Federation(engine, make_algorithm("fedecado"), work.layout, work.initial())
    return Simulation(federation, work, fleet, crew=crew)


def test_helpers_give_the_same_run_to_the_bit_with_clients_that_come_and_go() -> None:
    fleet = draw_fleet(N, (0.001, 0.01), (5, 30), speed_spread=1.0, dropout=0.3, seed=2)
    alone = simulation(None, fleet, mode="stream", active=4)
    with Helpers(2, MAKE) as crew:
        shared = simulation(crew, fleet, mode="stream", active=4)
        assert alone.run().rounds == shared.run().rounds
    np.testing.assert_array_equal(alone.federation.central, shared.federation.central)
    assert multiprocessing.active_children() == []


def test_a_client_that_fails_in_a_helper_fails_alone_and_is_named() -> None:
    fleet = draw_fleet(N, (0.001, 0.01), (5, 30), seed=1)
    wild = Fleet((Profile(rate=1e6, epochs=80, pace=1.0), *fleet.profiles[1:]), seed=1)
    with Helpers(1, MAKE) as crew:
        run = simulation(crew, wild)
        assert [record.updates for record in run.run().rounds] == [N - 1] * 6
    assert list(run.failures) == ["client-0"]


def test_a_run_in_which_every_client_fails_ends_with_the_reason() -> None:
    wild = Fleet(tuple(Profile(rate=1e6, epochs=80, pace=1.0) for _ in range(N)))
    run = simulation(None, wild)
    with pytest.raises(TaskError, match="tasks in a row failed, the last one of client-"):
        run.run()
    assert run.history.rounds == []


def test_traffic_counts_what_goes_down_and_comes_up() -> None:
    run = simulation(None, draw_fleet(N, (0.001, 0.01), (5, 30), seed=1), max_rounds=2)
    first, second = run.run().rounds
    state = 10 * 8
    assert first.traffic == N * 2 * state  # nobody has a flow yet
    assert second.traffic - first.traffic == N * 3 * state
    assert len(run.history.walls) == 2


def leave(_: Any, __: Any) -> None:
    os._exit(7)


def test_a_helper_that_dies_is_an_error_and_not_a_wait() -> None:
    with Staff(1, leave, None) as staff, pytest.raises(FedecadoError, match="exit code 7"):
        list(staff.answers())
