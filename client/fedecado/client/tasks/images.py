"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, dealt out to clients in many ways, with a model by name.

The data lies in a folder that the user names. Shares and initial weights follow from the seed; what is
held out is the same for all seeds. Pixels stay bytes until a client takes its share of them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedecado.client.partition import Indices
from fedecado.client.task import Role, Task
from fedecado.client.tasks.data.sets import DataSet, Found, Pictures, find
from fedecado.client.tasks.dealing import Dealing
from fedecado.client.tasks.held_out import VALIDATION_SHARE, Scored, check_scored, stratified
from fedecado.client.tasks.models import ImageModel, image_model
from fedecado.common.errors import ConfigError

_BATCH = 500

_MEANS_AND_SPREADS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


class Choice(NamedTuple):
    """Which images are trained on and which are scored."""

    name: DataSet
    data: str | None = None
    samples: int | None = None
    test_samples: int | None = None
    scored: Scored = "test"


def mnist(index: int, clients: int, seed: int, role: Role, **options: Any) -> Task:
    """Handwritten digits, 28 x 28; `partition=writers` gives each client its own writers."""
    return _make("mnist", (index, clients, seed, role), options)


def fashion_mnist(index: int, clients: int, seed: int, role: Role, **options: Any) -> Task:
    """Pictures of clothes, 28 x 28."""
    return _make("fashion_mnist", (index, clients, seed, role), options)


def cifar10(index: int, clients: int, seed: int, role: Role, **options: Any) -> Task:
    """Photographs of 10 kinds of things, 32 x 32 in colour."""
    return _make("cifar10", (index, clients, seed, role), options)


def cifar100(index: int, clients: int, seed: int, role: Role, **options: Any) -> Task:
    """Photographs of 100 kinds of things, 32 x 32 in colour."""
    return _make("cifar100", (index, clients, seed, role), options)


def _make(name: DataSet, client: tuple[int, int, int, Role], options: dict[str, Any]) -> Task:
    index, clients, seed, role = client
    model: ImageModel = options.pop("model", "lenet5")
    width = float(options.pop("width", 1.0))
    choice = Choice(name, **_taken(options, Choice._fields[1:]))
    dealing = Dealing(**_taken(options, Dealing._fields))
    if options:
        known = sorted({"model", "width", *Choice._fields[1:], *Dealing._fields})
        raise ConfigError(f"{name} takes no argument {min(options)!r}; it has: {', '.join(known)}")
    network = image_model(model, _whole(choice).shape, seed, width)
    if role == "evaluator":
        return Task(network, held_out(choice), evaluate=_evaluate(choice))
    mine = shares(choice, dealing, clients, seed)[index]
    pictures, kept = training(choice)
    return Task(network, _tensors(name, pictures, kept[mine]), evaluate=_evaluate(choice))


def _taken(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


def _whole(choice: Choice) -> Found:
    return find(choice.name, choice.data)


@lru_cache(maxsize=4)
def training(choice: Choice) -> tuple[Pictures, Indices]:
    """All training images, and the places of those that clients share."""
    pictures = _whole(choice).train
    kept = np.arange(len(pictures.labels))
    if check_scored(choice.scored) == "validation":
        kept = kept[~_validation(choice)]
    return pictures, _some(kept, choice.samples, "samples")


@lru_cache(maxsize=8)
def shares(choice: Choice, dealing: Dealing, clients: int, seed: int) -> list[Indices]:
    """Each client's samples, as places among those that clients share."""
    pictures, kept = training(choice)
    return dealing.parts(pictures.labels[kept], clients, seed, kept)


@lru_cache(maxsize=2)
def held_out(choice: Choice) -> tuple[Tensor, Tensor]:
    """The images that models are scored on."""
    if check_scored(choice.scored) == "validation":
        pictures, places = _whole(choice).train, np.flatnonzero(_validation(choice))
    else:
        pictures = _whole(choice).test
        places = np.arange(len(pictures.labels))
    return _tensors(choice.name, pictures, _some(places, choice.test_samples, "test_samples"))


def _validation(choice: Choice) -> Any:
    # Not by the run's seed: runs with different seeds are then scored on the same images.
    return stratified(_whole(choice).train.labels, VALIDATION_SHARE, np.random.default_rng(0))


def _some(places: Indices, count: int | None, name: str) -> Indices:
    """At most `count` of the places, the same ones for every seed."""
    if count is None:
        return places
    if not 1 <= count <= len(places):
        raise ConfigError(f"{name} is {count}; it must be between 1 and the {len(places)} that there are")
    return np.sort(np.random.default_rng(1).permutation(places)[:count])


def _tensors(name: DataSet, pictures: Pictures, places: Indices) -> tuple[Tensor, Tensor]:
    mean, spread = (torch.tensor(v).view(-1, 1, 1) for v in _MEANS_AND_SPREADS[name])
    pixels = torch.from_numpy(pictures.images[places]).float()
    return pixels.div_(255).sub_(mean).div_(spread), torch.from_numpy(
        pictures.labels[places].astype(np.int64)
    )


def _evaluate(choice: Choice) -> Callable[[nn.Module], Mapping[str, float]]:
    def evaluate(model: nn.Module) -> Mapping[str, float]:
        device = next(model.parameters()).device
        images, labels = held_out(choice)
        right = loss = 0.0
        for pixels, classes in zip(torch.split(images, _BATCH), torch.split(labels, _BATCH), strict=True):
            logits, known = model(pixels.to(device)), classes.to(device)
            right += (logits.argmax(1) == known).sum().item()
            loss += functional.cross_entropy(logits, known, reduction="sum").item()
        return {"accuracy": right / len(labels), "loss": loss / len(labels)}

    return evaluate
