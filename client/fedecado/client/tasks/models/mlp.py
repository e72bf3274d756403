"""A multilayer perceptron on flat inputs."""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from fedecado.client.device import isolated_rng


def mlp(inputs: int, hidden: Sequence[int], outputs: int, seed: int) -> nn.Sequential:
    """A ReLU network with the given hidden widths; equal seeds give equal weights on every client."""
    with isolated_rng(torch.device("cpu"), seed):
        return nn.Sequential(*layers(inputs, hidden, outputs))


def layers(inputs: int, hidden: Sequence[int], outputs: int) -> list[nn.Module]:
    """Linear layers with a ReLU between any two."""
    found: list[nn.Module] = []
    for before, after in itertools.pairwise([inputs, *hidden, outputs]):
        found += [nn.Linear(before, after), nn.ReLU()]
    return found[:-1]
