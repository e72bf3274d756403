"""Small models whose initial weights follow from a seed alone."""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from fedecado.client.device import isolated_rng


def mlp(inputs: int, hidden: Sequence[int], outputs: int, seed: int) -> nn.Sequential:
    """A ReLU network with the given hidden widths; equal seeds give equal weights on every client."""
    widths = [inputs, *hidden, outputs]
    layers: list[nn.Module] = []
    with isolated_rng(torch.device("cpu"), seed):
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
