"""What a model scores: its mean training loss, and the user's own measures."""

import math
from collections.abc import Mapping

import torch

from fedecado.client.flat import FlatModel
from fedecado.client.task import Task
from fedecado.common.errors import FedecadoError, TaskError


def mean_loss(task: Task, flat: FlatModel, *, samples: int, batch_size: int = 256) -> float:
    """Mean loss over at most `samples` evenly spaced samples, in eval mode and without gradients.

    Always the same samples, so values of different rounds can be compared.
    """
    n, device = task.samples, flat.device
    count = min(samples, n)
    with torch.no_grad(), flat.mode(training=False):
        if n <= min(samples, batch_size):
            return task.mean_loss(flat.model, task.batch(None, device)).item()
        total = 0.0
        for part in torch.split(torch.arange(count) * n // count, batch_size):
            total += task.mean_loss(flat.model, task.batch(part, device)).item() * len(part)
    return total / count


def scores(task: Task, flat: FlatModel) -> dict[str, float]:
    """The task's own `evaluate` at the model's current state; empty without one."""
    if task.evaluate is None:
        return {}
    try:
        with torch.no_grad(), flat.mode(training=False):
            found = task.evaluate(flat.model)
            if not isinstance(found, Mapping):
                raise TaskError(
                    f"evaluate returned a {type(found).__name__}; return a mapping of names to numbers"
                )
            measured = {str(name): float(value) for name, value in found.items()}
    except FedecadoError:
        raise
    except Exception as error:
        raise TaskError(f"evaluate failed: {type(error).__name__}: {error}") from error
    broken = [name for name, value in measured.items() if not math.isfinite(value)]
    if broken:
        raise TaskError(f"evaluate returned {broken[0]} = {measured[broken[0]]}; scores must be finite")
    return measured
