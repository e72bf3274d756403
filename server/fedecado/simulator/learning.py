"""Torch tasks in the simulator: the same local training that a worker process does."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedecado.client.evaluation import scores
from fedecado.client.flat import FlatModel
from fedecado.client.privacy import Noise
from fedecado.client.sensitivity import mean_curvature
from fedecado.client.task import Context, Role, Task, load_task
from fedecado.client.window import Assignment, Plan, run_window
from fedecado.common.layout import Vector
from fedecado.server.federation import Offer, Result
from fedecado.simulator.fleet import Profile


class Learning:
    """One model shared by all clients of a task; only their data differ.

    Curvatures are measured at the start state, as workers do when they enrol; with `probes` 0 never.
    """

    def __init__(
        self,
        spec: str,
        arguments: Mapping[str, Any],
        clients: int,
        *,
        plan: Plan,
        probes: int = 4,
        noise: Noise | None = None,
    ) -> None:
        self._plan, self._probes, self._noise = plan, probes, noise

        def make(index: int, role: Role) -> Task:
            return load_task(spec, Context(index, clients, plan.seed, role), arguments)

        self._tasks = [make(i, "trainer") for i in range(clients)]
        self._judge = make(0, "evaluator")
        self._flat = FlatModel(self._judge.model, torch.device("cpu"))
        self._start = self._flat.state()
        self._curvatures: dict[int, float] = {}
        self.layout = self._flat.layout
        self.samples = [task.samples for task in self._tasks]

    def initial(self) -> Vector:
        return self._start.copy()

    def train(self, client: int, offer: Offer, profile: Profile) -> Result:
        task, given = self._tasks[client], offer.assignment
        assigned = Assignment(offer.state, given.drift, given.pull, offer.weight, given.after)
        result = run_window(
            task,
            self._flat,
            assigned,
            replace(self._plan, rate=profile.rate, epochs=profile.epochs),
            round_seed=offer.task,
        )
        state = self._released(client, offer, result.state)
        assigned.settle(state, result.time)
        return Result(
            state,
            result.time,
            self._curvature(client),
            result.steps,
            math.nan if result.loss_before is None else result.loss_before,
            math.nan if result.loss_after is None else result.loss_after,
        )

    def _curvature(self, client: int) -> float:
        if not self._probes or self._noise is not None:
            return 0.0  # a worker with privacy keeps it to itself
        if client not in self._curvatures:
            self._flat.load(self._start)
            self._curvatures[client] = mean_curvature(
                self._tasks[client], self._flat, probes=self._probes, seed=self._plan.seed
            )
        return self._curvatures[client]

    def _released(self, client: int, offer: Offer, end: Vector) -> Vector:
        """What a worker with privacy would send; the noise is repeatable, for nothing here is secret."""
        if self._noise is None:
            return end
        d, sent = self.layout.parameters, offer.state.copy()
        chance = np.random.default_rng((self._plan.seed, client, offer.task))
        sent[:d] = self._noise.add(offer.state[:d], end[:d], chance)
        return sent

    def evaluate(self, state: Vector) -> dict[str, float]:
        self._flat.load(state)
        return scores(self._judge, self._flat)
