"""The digits task: shared split and start, separate shares, and it learns."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from fedecado.client.evaluation import scores
from fedecado.client.flat import FlatModel
from fedecado.client.task import Context, load_task
from fedecado.client.tasks.digits import Partition, make
from fedecado.client.tasks.models import mlp
from fedecado.client.window import Assignment, Plan, run_window
from fedecado.common.errors import ConfigError

CPU = torch.device("cpu")


@pytest.mark.parametrize("partition", get_args(Partition))
def test_the_clients_share_out_the_training_samples(partition: Any) -> None:
    shares = [make(i, 20, 3, "trainer", partition=partition).samples for i in range(20)]
    assert sum(shares) == 1438
    assert min(shares) >= 1
    assert make(0, 20, 3, "evaluator", partition=partition).samples == 359


def test_everyone_starts_from_the_same_weights_and_seeds_differ() -> None:
    states = [
        FlatModel(make(i, 3, seed, "trainer").model, CPU).state() for i, seed in ((0, 1), (2, 1), (0, 2))
    ]
    np.testing.assert_array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])


def test_it_loads_by_name_and_learns() -> None:
    arguments = {"partition": "iid", "hidden": [32]}
    task = load_task("fedecado.client.tasks.digits:make", Context(0, 1, 0), arguments)
    flat = FlatModel(task.model, CPU)
    before = scores(task, flat)
    result = run_window(task, flat, Assignment(flat.state()), Plan(0.1, epochs=3, momentum=0.9), round_seed=0)
    after = scores(task, flat)
    assert before["accuracy"] < 0.3
    assert after["accuracy"] > 0.9
    assert after["loss"] < before["loss"]
    assert result.steps == 3 * 45


def test_an_unknown_partition_is_refused() -> None:
    with pytest.raises(ConfigError, match="dirichlet"):
        make(0, 2, 0, "trainer", partition="random")  # type: ignore[arg-type]  # the mistake under test


def test_a_perceptron_has_the_widths_it_was_given_and_leaves_the_random_state() -> None:
    before = torch.get_rng_state()
    model = mlp(4, (8, 6), 3, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert [tuple(p.shape) for p in model.parameters()] == [(8, 4), (8,), (6, 8), (6,), (3, 6), (3,)]
    assert isinstance(model[-1], nn.Linear)
    assert len(mlp(4, (), 3, seed=0)) == 1
