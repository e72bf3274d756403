"""Handwritten digits (8 x 8 pixels, 1,797 samples): real data that ships with scikit-learn."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedecado.client import partition as deal
from fedecado.client.task import Role, Task
from fedecado.client.tasks.models import mlp
from fedecado.common.errors import ConfigError, TaskError

Partition = Literal["dirichlet", "iid", "shards", "quantity"]


class _Split(NamedTuple):
    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def make(
    index: int,
    clients: int,
    seed: int,
    role: Role,
    *,
    alpha: float = 0.1,
    hidden: Sequence[int] = (64,),
    partition: Partition = "dirichlet",
) -> Task:
    """A multilayer perceptron on client `index`'s share of the digits.

    Shares and initial weights follow from `seed`, the held-out fifth is the same for everybody.
    `alpha` is the label skew of "dirichlet"; smaller is more skewed. An evaluator holds the test set.
    """
    if partition not in get_args(Partition):
        raise ConfigError(f"partition is {partition!r}; it must be one of {', '.join(get_args(Partition))}")
    split = _load()
    if role == "evaluator":
        data = split.test_inputs, split.test_labels
    else:
        mine = torch.from_numpy(_parts(clients, seed, alpha, partition)[index])
        data = split.inputs[mine], split.labels[mine]
    return Task(mlp(64, hidden, 10, seed), data, evaluate=_evaluate)


def _evaluate(model: nn.Module) -> Mapping[str, float]:
    split = _load()
    device = next(model.parameters()).device
    labels = split.test_labels.to(device)
    logits = model(split.test_inputs.to(device))
    accuracy = (logits.argmax(1) == labels).float().mean()
    return {"accuracy": accuracy.item(), "loss": functional.cross_entropy(logits, labels).item()}


@lru_cache(maxsize=1)
def _load() -> _Split:
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise TaskError("the digits task needs scikit-learn; install fedecado[client]") from error
    pixels, labels = load_digits(return_X_y=True)
    # Not by the run's seed: runs with different seeds are then scored on the same samples.
    train_x, test_x, train_y, test_y = train_test_split(
        pixels / 16.0, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return _Split(
        torch.tensor(train_x, dtype=torch.float32),
        torch.tensor(train_y, dtype=torch.int64),
        torch.tensor(test_x, dtype=torch.float32),
        torch.tensor(test_y, dtype=torch.int64),
    )


@lru_cache(maxsize=8)
def _parts(clients: int, seed: int, alpha: float, partition: Partition) -> list[deal.Indices]:
    rng = np.random.default_rng(seed)
    labels = _load().labels.numpy()
    match partition:
        case "iid":
            return deal.iid(len(labels), clients, rng)
        case "quantity":
            return deal.quantity(len(labels), clients, 1.0, rng)
        case "shards":
            return deal.shards(labels, clients, 2, rng)
        case "dirichlet":
            # Half an even share where there are too many clients for the usual ten samples each.
            least = max(1, min(10, len(labels) // (2 * clients)))
            return deal.dirichlet(labels, clients, alpha, rng, least)
