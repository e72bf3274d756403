"""Synthetic updates: what simulated workers send is what the coordinator can aggregate for ever."""

import math

import numpy as np

from fedecado.client.work import Failed, Measuring, Trained, Training
from fedecado.loadtest.synthetic import SyntheticTask
from fedecado.server.algorithms import make_algorithm
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Aggregated, Assign, CloseRound, Engine, Enrolled, Rules, UpdateArrived
from fedecado.v1.session_pb2 import Assign as AssignHeader
from fedecado.v1.session_pb2 import Evaluate


def test_any_number_of_rounds_of_synthetic_updates_stays_finite() -> None:
    task, clients = SyntheticTask(8, seed=0), {f"w{n}": n / 4 - 0.5 for n in range(5)}
    engine = Engine(Rules(max_rounds=300, min_clients=5))
    federation = Federation(engine, make_algorithm("fedecado"), task.layout, np.zeros(8, np.float32))
    effects = [effect for client in clients for effect in engine.handle(Enrolled(client, 100))]
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, Assign):
            offer = federation.offer(effect.task)
            drift = None if offer.assignment.drift is None else offer.assignment.drift.copy()
            header = AssignHeader(
                task_id=effect.task, weight=offer.weight, drift_after=offer.assignment.after
            )
            work = Training(header, offer.state.copy(), drift)
            trained = task.train(work, clients[effect.client], 0.0)
            assert isinstance(trained, Trained)
            result = Result(trained.state, trained.window, 1.0)
            federation.check(effect.task, result)
            effects += engine.handle(UpdateArrived(effect.client, effect.task))
            federation.accept(effect.task, result)
        elif isinstance(effect, CloseRound):
            federation.aggregate(effect.tasks)
            effects += engine.handle(Aggregated(federation.commit(effect.tasks).rate))
    assert federation.version == 300
    assert np.abs(federation.central).max() < 10


def test_a_bad_actor_sends_what_is_not_a_number() -> None:
    task = SyntheticTask(4, seed=0)
    work = Training(AssignHeader(task_id=1, weight=2.0), np.zeros(4, np.float32), None)
    trained = task.train(work, 1.0, 0.0, nan=True)
    assert isinstance(trained, Trained)
    assert math.isnan(trained.state[0])
    assert trained.window * trained.weight > 0


def test_the_wrong_model_has_another_layout() -> None:
    task = SyntheticTask(4, seed=0)
    assert task.profile(1, wrong_model=True).layout.digest != task.profile(1).layout.digest


def test_an_evaluation_is_answered_by_a_failure() -> None:
    task = SyntheticTask(4, seed=0)
    assert isinstance(task.train(Measuring(Evaluate(task_id=1), np.zeros(4, np.float32)), 0, 0), Failed)
