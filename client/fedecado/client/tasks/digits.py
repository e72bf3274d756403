"""Handwritten digits (8 x 8 pixels, 1,797 samples): real data that ships with scikit-learn."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedecado.client.partition import Indices
from fedecado.client.task import Role, Task
from fedecado.client.tasks.dealing import Dealing
from fedecado.client.tasks.held_out import VALIDATION_SHARE, Scored, check_scored, stratified
from fedecado.client.tasks.models import mlp
from fedecado.common.errors import ConfigError, TaskError

Partition = Literal["dirichlet", "iid", "shards", "quantity"]


class _Split(NamedTuple):
    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def make(  # noqa: PLR0913 - the last four are the user's to choose from
    index: int,
    clients: int,
    seed: int,
    role: Role,
    *,
    alpha: float = 0.1,
    hidden: Sequence[int] = (64,),
    partition: Partition = "dirichlet",
    scored: Scored = "test",
) -> Task:
    """A multilayer perceptron on client `index`'s share of the digits.

    Shares and initial weights follow from `seed`, the held-out fifth is the same for everybody.
    `alpha` is the label skew of "dirichlet"; smaller is more skewed. An evaluator holds the test set, or
    with `scored="validation"` a tenth of the rest, which nobody trains on then.
    """
    if partition not in get_args(Partition):
        raise ConfigError(f"partition is {partition!r}; it must be one of {', '.join(get_args(Partition))}")
    split = _load(check_scored(scored))
    if role == "evaluator":
        data = split.test_inputs, split.test_labels
    else:
        mine = torch.from_numpy(_parts(clients, seed, alpha, partition, scored)[index])
        data = split.inputs[mine], split.labels[mine]
    return Task(mlp(64, hidden, 10, seed), data, evaluate=partial(_evaluate, split))


def _evaluate(split: _Split, model: nn.Module) -> Mapping[str, float]:
    device = next(model.parameters()).device
    labels = split.test_labels.to(device)
    logits = model(split.test_inputs.to(device))
    accuracy = (logits.argmax(1) == labels).float().mean()
    return {"accuracy": accuracy.item(), "loss": functional.cross_entropy(logits, labels).item()}


@lru_cache(maxsize=2)
def _load(scored: Scored) -> _Split:
    pixels, labels = _read()
    # Not by the run's seed: runs with different seeds are then scored on the same samples.
    test = stratified(labels, 0.2, np.random.default_rng(0))
    if scored == "validation":
        pixels, labels = pixels[~test], labels[~test]
        test = stratified(labels, VALIDATION_SHARE, np.random.default_rng(0))
    inputs, classes = torch.from_numpy(pixels / np.float32(16)), torch.from_numpy(labels)
    held_out = torch.from_numpy(test)
    return _Split(inputs[~held_out], classes[~held_out], inputs[held_out], classes[held_out])


def _read() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Pixels and labels, from scikit-learn's own file: importing scikit-learn takes over a second."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise TaskError("the digits task needs scikit-learn; install fedecado[client]")
    table = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not table.exists():
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        return pixels.astype(np.float32), labels.astype(np.int64)
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    return rows[:, :-1].copy(), rows[:, -1].astype(np.int64)


@lru_cache(maxsize=8)
def _parts(clients: int, seed: int, alpha: float, partition: Partition, scored: Scored) -> list[Indices]:
    labels = _load(scored).labels.numpy()
    return Dealing(partition, alpha).parts(labels, clients, seed, np.arange(len(labels)))
