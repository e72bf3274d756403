"""One client window: SGD on the client's data, driven by the flow from the centre.

Symbols: `eta` learning rate, `mu` pull towards `x_start`, `b` drift (for FedECADO a share of the flow, over
the weight: c I_i / w_i), `w_i` data weight, `T_i` simulated time of the window. Each minibatch makes the step

    x <- x - eta (grad f(x) + mu (x - x_start) - b),    tau <- tau + eta

and T_i = tau / w_i. What of the drift is not to lead the client to other gradients is added in the end,
x <- x + after tau b (`Assignment.settle`).

Clipping bounds the whole bracket and momentum averages it, not grad f(x) alone: both vanish where grad f(x)
balances the drift, so they do not move that point. Weight decay belongs to f and is added after clipping, in
the order of torch's own SGD.

A drift can push a client uphill, to where its loss is steep and steps of `eta` are no longer stable: the
window then ends far away, and the next drift is made from that. So a window with a drift is `steady`: the
bracket is bounded by its own first norm. Stable steps on a convex quadratic never meet that bound.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final, get_args

import numpy as np
import torch
from torch import Tensor

from fedecado.client.device import isolated_rng
from fedecado.client.evaluation import mean_loss
from fedecado.client.flat import FlatModel, as_tensor
from fedecado.client.steps import Adaptive, Scheduled, Steps
from fedecado.client.task import Task
from fedecado.common.errors import ConfigError, TaskError
from fedecado.common.layout import Vector

Schedule = Literal["constant", "cosine", "step"]
Precision = Literal["full", "bf16"]

# Losses are read back this often: at every step an accelerator would wait for the host.
_CHECK_EVERY = 32


class Cancelled(Exception):  # noqa: N818 - an outcome that the caller asked for, not an error
    """The window was stopped by its `cancelled` callback; the model holds a half-way state."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a client trains; every client may choose its own.

    `schedule` runs over the steps of each window: "cosine" falls from `rate` towards 0, "step" divides
    it by 10 at half and again at three quarters. With a `tolerance` the steps follow from the error they
    make, and `rate` is only where the search for them begins. `loss_samples` bounds the samples whose loss
    is measured before and after a window; 0 turns that off.
    """

    rate: float
    schedule: Schedule = "constant"
    epochs: int = 1
    batch_size: int = 32
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    steady: bool = True
    seed: int = 0
    precision: Precision = "full"
    loss_samples: int = 256
    tolerance: float | None = None

    def __post_init__(self) -> None:
        positive, natural = "a positive, finite number", "an integer of at least 1"
        for name, fine, rule in (
            ("rate", 0 < self.rate < math.inf, positive),
            ("schedule", self.schedule in get_args(Schedule), f"one of {get_args(Schedule)}"),
            ("epochs", isinstance(self.epochs, int) and self.epochs >= 1, natural),
            ("batch_size", isinstance(self.batch_size, int) and self.batch_size >= 1, natural),
            ("momentum", 0 <= self.momentum < 1, "at least 0 and below 1"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or a positive, finite number"),
            ("clip", self.clip is None or 0 < self.clip < math.inf, f"None or {positive}"),
            ("seed", self.seed >= 0, "0 or more"),
            ("precision", self.precision in get_args(Precision), f"one of {get_args(Precision)}"),
            ("loss_samples", self.loss_samples >= 0, "0 or more"),
            ("tolerance", self.tolerance is None or 0 < self.tolerance < math.inf, f"None or {positive}"),
        ):
            if not fine:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be {rule}")

    def rates(self, steps: int) -> list[float]:
        """The learning rate of each step of a window."""
        if self.schedule == "cosine":
            return [self.rate * (1 + math.cos(math.pi * k / steps)) / 2 for k in range(steps)]
        if self.schedule == "step":
            return [self.rate * 0.1 ** ((2 * k >= steps) + (4 * k >= 3 * steps)) for k in range(steps)]
        return [self.rate] * steps

    def batches(self, samples: int) -> list[int]:
        """Batch sizes of one epoch.

        A single left-over sample joins the batch before it: alone it would break BatchNorm.
        """
        whole, rest = divmod(samples, self.batch_size)
        sizes = [self.batch_size] * whole + [rest] * (rest > 0)
        if rest == 1 and whole:
            sizes[-2:] = [self.batch_size + 1]
        return sizes


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """What the centre asks of a client: where to start (parameters and buffers), `b`, `mu` and `w_i`.

    `after` is how much more of `b` is added when the window is over, see `settle`.
    """

    start: Vector
    drift: Vector | None = None
    pull: float = 0.0
    weight: float = 1.0
    after: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ConfigError(f"the client's weight is {self.weight}; it must be positive and finite")
        if not 0 <= self.pull < math.inf:
            raise ConfigError(f"the pull mu is {self.pull}; it must be 0 or positive, and finite")
        if not 0 <= self.after < math.inf:
            raise ConfigError(f"the drift afterwards is {self.after}; it must be 0 or positive, and finite")

    def settle(self, state: Vector, time: float) -> None:
        """Add to a window's final state, T_i = `time`, what of the drift no gradient was to see.

        Not a part of the window: it is the centre's own, so a client that clips what it sends and adds noise
        to it does so before.
        """
        if self.drift is not None and self.after:
            # By torch: numpy would write down the product first.
            moved, drift = torch.from_numpy(state)[: len(self.drift)], as_tensor(self.drift)
            moved.add_(drift, alpha=self.after * self.weight * time)


@dataclass(frozen=True, slots=True, eq=False)
class WindowResult:
    """Where a window ended; losses are None when the plan does not measure them."""

    state: Vector
    time: float
    steps: int
    samples_seen: int
    loss_before: float | None
    loss_after: float | None


def never() -> bool:
    """The default `cancelled` callback."""
    return False


def silent(done: int, total: int, loss: float | None) -> None:
    """The default `progress` callback: steps done, steps in all, the recent loss if it was read back."""


def run_window(
    task: Task,
    flat: FlatModel,
    assignment: Assignment,
    plan: Plan,
    *,
    round_seed: int,
    cancelled: Callable[[], bool] = never,
    progress: Callable[[int, int, float | None], None] = silent,
) -> WindowResult:
    """Train `flat`'s model from `assignment.start` with the data and the loss of `task`.

    Equal (plan.seed, round_seed) give equal results; the caller's random state is left as it was.
    Many tasks may share one `flat` as long as their models are alike. `cancelled` is asked before each
    step, `progress` is told after it.
    """
    if round_seed < 0:
        raise ConfigError(f"round_seed is {round_seed}; it must be 0 or more")
    shuffle_seed, noise_seed = np.random.SeedSequence((plan.seed, round_seed)).generate_state(2).tolist()
    flat.load(assignment.start)
    samples = task.samples
    sizes = plan.batches(samples)
    descent = _Descent(flat, assignment, plan, plan.epochs * len(sizes))
    with isolated_rng(flat.device, noise_seed):
        before = _measure(task, flat, plan)
        with flat.mode(training=True):
            batches = _batches(task, sizes, plan.epochs, flat.device, shuffle_seed)
            state = descent.run(task, batches, cancelled, progress)
        after = _measure(task, flat, plan)
    if not all(loss is None or math.isfinite(loss) for loss in (before, after)):
        raise descent.diverged(len(descent.etas) - 1, f"the loss went from {before} to {after}")
    return WindowResult(
        state=state,
        time=math.fsum(descent.etas) / assignment.weight,
        steps=len(descent.etas),
        samples_seen=plan.epochs * samples,
        loss_before=before,
        loss_after=after,
    )


@final
class _Descent:
    """The steps of one window on the flat vectors, with the scratch memory they need."""

    def __init__(self, flat: FlatModel, assignment: Assignment, plan: Plan, total: int) -> None:
        self._flat, self._assignment, self._plan, self._total = flat, assignment, plan, total
        self._lengths: Steps = (
            Scheduled(plan.rates(total)) if plan.tolerance is None else Adaptive(plan.tolerance, plan.rate)
        )
        self.etas: list[float] = []
        drift = assignment.drift
        self._b = None if drift is None else flat.vector(drift, "drift")
        self._x_start = flat.values.clone() if assignment.pull else None
        self._velocity: Tensor | None = None
        self._steady = plan.steady and drift is not None and total > 1  # a first step has no bound
        self._first_norm: Tensor | None = None  # of the bracket, in a steady window
        self._autocast = _autocast(flat, plan)
        self._losses: list[Tensor] = []  # of the steps since the last check
        self._recent: float | None = None  # mean of the steps before it

    def run(
        self,
        task: Task,
        batches: Iterator[Any],
        cancelled: Callable[[], bool],
        progress: Callable[[int, int, float | None], None],
    ) -> Vector:
        """Make all steps; the final state is finite and the model intact, or this raises."""
        for k, batch in enumerate(batches):
            if cancelled():
                raise Cancelled(f"cancelled at step {k} of {self._total}")
            self._losses.append(self._differentiate(task, batch, k))
            self.etas.append(self._lengths.next(partial(self._probe, task, batch)))
            self._advance(self.etas[-1])
            if k % _CHECK_EVERY == _CHECK_EVERY - 1:
                self._check_losses()
            progress(k + 1, self._total, self._recent)
        self._check_losses()
        self._flat.check()
        state = self._flat.state()
        if not _is_finite(state):
            raise self.diverged(len(self.etas) - 1, "the model's state is not finite")
        return state

    def _probe(self, task: Task, batch: Any, eta: float) -> tuple[float, float]:
        """RMS of how the gradient changes over a step of `eta`, and of the gradient; nothing is moved."""
        flat = self._flat
        x, g = flat.values.clone(), flat.grads.clone()
        flat.values.add_(g, alpha=-eta)
        self._differentiate(task, batch, len(self.etas))
        change = float((flat.grads - g).square_().mean().sqrt())
        flat.values.copy_(x)
        flat.grads.copy_(g)
        return change, float(g.square_().mean().sqrt())

    def _differentiate(self, task: Task, batch: Any, k: int) -> Tensor:
        """Leave grad f(x) - b in the model's gradients; the loss comes back."""
        flat = self._flat
        # The backward pass adds to what is there, so starting from -b saves a vector operation.
        if self._b is None:
            flat.grads.zero_()
        else:
            torch.neg(self._b, out=flat.grads)
        with self._autocast:
            loss = task.mean_loss(flat.model, batch)
        try:
            torch.autograd.backward(loss)
        except Exception as error:
            raise TaskError(f"the backward pass failed at step {k}: {error}") from error
        if k == 0 and self._total > 1:  # early, since all steps that follow would be in vain
            flat.check()
        return loss.detach()

    def diverged(self, step: int, what: str) -> TaskError:
        given = self._assignment
        if not np.isfinite(given.start).all() or not (given.drift is None or np.isfinite(given.drift).all()):
            return TaskError(f"{what} at step {step}: the state or drift it was given is not finite already")
        return TaskError(
            f"{what} at step {step} with learning rate {self.etas[step]:g} and clip {self._plan.clip}; "
            "lower the learning rate or clip"
        )

    def _check_losses(self) -> None:
        recent = torch.stack(self._losses).tolist() if self._losses else []
        for k, loss in enumerate(recent, start=len(self.etas) - len(recent)):
            if not math.isfinite(loss):
                raise self.diverged(k, f"the loss is {loss}")
        if recent:
            self._recent = math.fsum(recent) / len(recent)
        self._losses.clear()

    def _advance(self, eta: float) -> None:
        x, g, plan = self._flat.values, self._flat.grads, self._plan
        if self._x_start is not None:
            g.add_(x - self._x_start, alpha=self._assignment.pull)
        # Neither bound branches on a value, so nothing waits for the device.
        if plan.clip is not None:  # as torch.nn.utils.clip_grad_norm_
            g.mul_((plan.clip / (torch.linalg.vector_norm(g) + 1e-6)).clamp_(max=1.0))
        if self._steady:
            norm = torch.linalg.vector_norm(g)
            if self._first_norm is None:
                self._first_norm = norm  # the bound itself, so there is nothing to scale
            else:
                tiny = torch.finfo(norm.dtype).tiny
                g.mul_((self._first_norm / norm.clamp_min(tiny)).clamp_(max=1.0))
        if plan.weight_decay:
            g.add_(x, alpha=plan.weight_decay)
        if plan.momentum:
            self._velocity = (
                g.clone() if self._velocity is None else self._velocity.mul_(plan.momentum).add_(g)
            )
            g = self._velocity
        x.add_(g, alpha=-eta)


def _batches(task: Task, sizes: list[int], epochs: int, device: torch.device, seed: int) -> Iterator[Any]:
    if len(sizes) == 1:
        for _ in range(epochs):
            yield task.batch(None, device)
        return
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for indices in torch.split(torch.randperm(sum(sizes), generator=generator), sizes):
            yield task.batch(indices, device)


def _is_finite(state: Vector) -> bool:
    """One pass without temporaries: a squared length that is finite proves every number finite."""
    square = float(np.vdot(state, state))  # dot would warn of overflow
    return math.isfinite(square) or bool(np.isfinite(state).all())


def _measure(task: Task, flat: FlatModel, plan: Plan) -> float | None:
    if not plan.loss_samples:
        return None
    with _autocast(flat, plan):
        return mean_loss(task, flat, samples=plan.loss_samples, batch_size=max(plan.batch_size, 128))


def _autocast(flat: FlatModel, plan: Plan) -> AbstractContextManager[Any]:
    if plan.precision == "full":
        return nullcontext()
    return torch.autocast(flat.device.type, dtype=torch.bfloat16)
