"""The mean curvature of a client's loss: h = trace(H) / d, one number per client.

Hutchinson's estimate: for a Rademacher probe z (entries +1 or -1), E[z^T H z] = trace(H). H is the
Hessian of the mean loss over a subset of the client's data at the model's current state.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor

from fedecado.client.device import isolated_rng
from fedecado.client.flat import FlatModel
from fedecado.client.task import Task
from fedecado.common.errors import ConfigError, TaskError

# Second-order graphs are large, so the subset is taken in pieces of this many samples.
_CHUNK = 64


def mean_curvature(
    task: Task, flat: FlatModel, *, probes: int = 4, samples: int = 256, seed: int = 0
) -> float:
    """Estimate trace(H) / d over at most `samples` samples, floored at 0.

    H z comes from a second backward pass; where an operation of the model has none, from central
    differences of gradients along z. Eval mode, so BatchNorm statistics and dropout stay out of it.
    The model, its gradients and torch's random state are left as they were.
    """
    if probes < 1 or samples < 1:
        raise ConfigError(f"probes is {probes} and samples is {samples}; both must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(task.samples, generator=generator)[:samples]
    total = 0.0
    with isolated_rng(flat.device, seed), flat.mode(training=False), _double_backward_kernels(flat.device):
        for part in torch.split(chosen, _CHUNK):
            # Fresh probes for every piece: the mean stays unbiased and its variance falls.
            z = [_rademacher(flat, generator) for _ in range(probes)]
            total += sum(_curvatures(task, flat, task.batch(part, flat.device), z)) / probes * len(part)
    h = total / len(chosen) / flat.d
    if not math.isfinite(h):
        raise TaskError(
            f"the curvature of the loss is {h} at the model's current state; check model and data"
        )
    return max(h, 0.0)


def _curvatures(task: Task, flat: FlatModel, batch: Any, probes: list[Tensor]) -> list[float]:
    """z^T H z of each probe."""
    # No second derivative, or no memory for its graph; outside the handler that graph is gone.
    with suppress(RuntimeError):
        return list(_by_double_backward(task, flat, batch, probes))
    return list(_by_differences(task, flat, batch, probes))


def _by_double_backward(task: Task, flat: FlatModel, batch: Any, probes: list[Tensor]) -> Iterator[float]:
    parameters = flat.parameters
    loss = task.mean_loss(flat.model, batch)
    if _differentiable_once(loss):
        raise RuntimeError("a custom function of the model has no second derivative")
    first = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    # Gradients that do not depend on the parameters add nothing to H.
    curved = [k for k, gradient in enumerate(first) if gradient.requires_grad]
    for probe in probes:
        if not curved:
            yield 0.0
            continue
        z = flat.split(probe)
        Hz = torch.autograd.grad(
            [first[k] for k in curved],
            parameters,
            grad_outputs=[z[k] for k in curved],
            retain_graph=True,
            materialize_grads=True,
        )
        yield _dot(Hz, z)


def _differentiable_once(loss: Tensor) -> bool:
    """Whether the graph holds a custom function marked `once_differentiable`.

    Asked for derivatives with respect to given inputs, torch drops what such a function would have
    added and says nothing, so it must be looked for.
    """
    seen, ahead = set(), [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        custom = getattr(node, "_forward_cls", None)
        if custom is not None and hasattr(custom.backward, "__wrapped__"):
            return True
        ahead += [following for following, _ in node.next_functions]
    return False


def _by_differences(task: Task, flat: FlatModel, batch: Any, probes: list[Tensor]) -> Iterator[float]:
    x = flat.values.clone()
    # The cube root of the rounding error balances it against the truncation of a central difference.
    scale = max(float(x.square().mean().sqrt()), 0.1)
    epsilon = float(torch.finfo(flat.dtype).eps ** (1 / 3)) * scale
    try:
        for probe in probes:
            slopes = []
            for side in (epsilon, -epsilon):
                torch.add(x, probe, alpha=side, out=flat.values)
                slopes.append(_slope(task, flat, batch, flat.split(probe)))
            yield (slopes[0] - slopes[1]) / (2 * epsilon)
    finally:
        flat.values.copy_(x)


def _slope(task: Task, flat: FlatModel, batch: Any, z: list[Tensor]) -> float:
    loss = task.mean_loss(flat.model, batch)
    try:
        return _dot(torch.autograd.grad(loss, flat.parameters, materialize_grads=True), z)
    except RuntimeError as error:
        raise TaskError(f"the gradient of the loss cannot be computed: {error}") from error


def _dot(left: tuple[Tensor, ...], right: list[Tensor]) -> float:
    return math.fsum(float((a * b).sum()) for a, b in zip(left, right, strict=True))


def _rademacher(flat: FlatModel, generator: torch.Generator) -> Tensor:
    signs = torch.randint(0, 2, (flat.d,), generator=generator, dtype=torch.int8)
    return signs.to(flat.device, flat.dtype).mul_(2).sub_(1)


def _double_backward_kernels(device: torch.device) -> AbstractContextManager[Any]:
    """cuDNN's recurrent layers have neither a second backward pass nor a first one in eval mode."""
    return torch.backends.cudnn.flags(enabled=False) if device.type == "cuda" else nullcontext()
