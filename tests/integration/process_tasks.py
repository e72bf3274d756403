"""Tasks for worker processes: small, large, failing, and with all kinds of tensors."""

import itertools
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedecado.client.task import Task


class Point(nn.Module):
    """Nothing but a vector."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size))


def _distance(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    (rows,) = batch
    assert isinstance(model, Point)
    # A part of the vector is enough to train on; the whole of it travels.
    return (model.x[: rows.shape[1]] - rows).square().mean()


def _score(model: nn.Module) -> dict[str, float]:
    assert isinstance(model, Point)
    return {"distance": float((model.x[:4] - 1).abs().max())}


def point(index: int, *, megabytes: float = 0.004, samples: int = 8) -> Task:
    """A vector that is drawn to another one; `megabytes` is its size."""
    size = int(megabytes * (1 << 20) / 4)
    return Task(Point(size), (torch.full((samples, 4), 1.0 + index),), loss=_distance, evaluate=_score)


def gated(gate: str) -> Task:
    """Like `point`, but training waits until the file `gate` is there."""
    first = itertools.count()

    def loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
        # The first call measures the curvature, before the worker has joined.
        while next(first) and not Path(gate).exists():
            time.sleep(0.02)
        return _distance(model, batch)

    return Task(Point(100), (torch.ones(8, 4),), loss=loss)


def failing() -> Task:
    """Like `point`, but the curvature and the first training fail."""
    calls = itertools.count(1)

    def loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
        if next(calls) <= 2:
            raise ZeroDivisionError("the scale of feature 7 is zero")
        return _distance(model, batch)

    return Task(Point(100), (torch.ones(8, 4),), loss=loss)


class Normed(nn.Module):
    """BatchNorm, whose running statistics are buffers, after a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.frozen(inputs)))
        return out


def normed(index: int, seed: int) -> Task:
    """Two clients whose inputs have different means, so that their statistics differ."""
    torch.manual_seed(seed)
    model = Normed()
    inputs = torch.randn(64, 4) + 10 * index
    return Task(model, (inputs, (inputs.sum(1) > 40 * index).long()), loss=_classify)


def _classify(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


def only_first(index: int) -> Task:
    """A task that only one client has data for."""
    if index > 0:
        raise FileNotFoundError("no data on this machine")
    return point(index)
