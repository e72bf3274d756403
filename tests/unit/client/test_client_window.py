"""A client window is plain SGD plus the drift and the pull of the centre."""

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedecado.client.flat import FlatModel
from fedecado.client.task import Task, cross_entropy_on_pairs
from fedecado.client.window import Assignment, Cancelled, Plan, run_window
from fedecado.common.errors import ConfigError, LayoutError, TaskError

CPU = torch.device("cpu")


class Recorder:
    """Cross-entropy that remembers the batches it trained on, so a test can replay them."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        if model.training:
            self.batches.append(batch)
        return cross_entropy_on_pairs(model, batch)


def make(samples: int = 23, *, dropout: float = 0.0) -> tuple[Task, FlatModel, Recorder]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (samples,), generator=generator)
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 3))
    recorder = Recorder()
    task = Task(model, (x, y), loss=recorder)
    return task, FlatModel(model, CPU, torch.float64), recorder


def flattened(model: nn.Module) -> np.ndarray[Any, Any]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_without_drift_and_pull_it_is_torch_sgd(
    momentum: float, weight_decay: float, clip: float | None
) -> None:
    task, flat, recorder = make()
    model = copy.deepcopy(task.model)
    plan = Plan(0.5, epochs=3, batch_size=5, momentum=momentum, weight_decay=weight_decay, clip=clip)
    result = run_window(task, flat, Assignment(flat.state()), plan, round_seed=4)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=momentum, weight_decay=weight_decay)
    for batch in recorder.batches:
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy_on_pairs(model, batch))
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    assert result.steps == len(recorder.batches) == 15
    np.testing.assert_allclose(result.state, flattened(model), rtol=1e-10, atol=1e-12)


def test_drift_and_pull_enter_every_step_and_time_counts_the_rates() -> None:
    task, flat, recorder = make()
    start, eta, mu, weight = flat.state(), 0.2, 0.7, 2.5
    b = np.random.default_rng(0).normal(size=flat.d)
    plan = Plan(eta, epochs=2, batch_size=6, momentum=0.5, steady=False)
    result = run_window(task, flat, Assignment(start, b, mu, weight), plan, round_seed=0)

    x, v = start.copy(), np.zeros_like(start)
    model = copy.deepcopy(task.model)
    replay = FlatModel(model, CPU, torch.float64)
    for batch in recorder.batches:
        replay.load(x)
        replay.grads.zero_()
        torch.autograd.backward(cross_entropy_on_pairs(model, batch))
        v = 0.5 * v + replay.grads.numpy() + mu * (x - start) - b
        x = x - eta * v
    np.testing.assert_allclose(result.state, x, rtol=1e-10, atol=1e-12)
    assert result.time == pytest.approx(result.steps * eta / weight, rel=1e-14)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_drift_equal_to_the_gradient_holds_the_client_still(momentum: float) -> None:
    """Also under clipping and momentum: the steady state of the circuit does not depend on them."""
    task, flat, _ = make()
    start = flat.state()
    flat.grads.zero_()
    torch.autograd.backward(task.mean_loss(flat.model, task.batch(None, CPU)))
    drift = flat.grads.numpy().copy()
    plan = Plan(0.5, epochs=20, batch_size=100, momentum=momentum, clip=1e-3)
    result = run_window(task, flat, Assignment(start, drift), plan, round_seed=0)
    np.testing.assert_allclose(result.state, start, atol=1e-12)


def quadratic(curvatures: Tensor) -> tuple[Task, FlatModel]:
    """f(x) = x A x / 2 with A = diag(curvatures), one sample."""

    class Point(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.ones_like(curvatures))

        def forward(self) -> Tensor:
            return (curvatures * self.x.square()).sum() / 2

    model = Point()
    task = Task(model, (torch.zeros(1, 1), torch.zeros(1)), loss=lambda module, _: module())
    return task, FlatModel(model, CPU, torch.float64)


def test_a_steady_window_bounds_the_drifted_gradient_by_its_first_norm() -> None:
    task, flat, recorder = make()
    start, eta = flat.state(), 0.2
    b = 0.1 * np.random.default_rng(0).normal(size=flat.d)
    result = run_window(task, flat, Assignment(start, b), Plan(eta, epochs=2, batch_size=6), round_seed=0)
    x, first, bounded = start.copy(), math.inf, 0
    replay = FlatModel(copy.deepcopy(task.model), CPU, torch.float64)
    for batch in recorder.batches:
        replay.load(x)
        replay.grads.zero_()
        torch.autograd.backward(cross_entropy_on_pairs(replay.model, batch))
        g = replay.grads.numpy() - b
        norm = float(np.linalg.norm(g))
        first = min(first, norm) if first == math.inf else first
        bounded += norm > first
        x = x - eta * g * min(1.0, first / norm)
    assert 0 < bounded < len(recorder.batches)
    np.testing.assert_allclose(result.state, x, rtol=1e-10, atol=1e-12)
    loose = run_window(
        task, flat, Assignment(start, b), Plan(eta, epochs=2, batch_size=6, steady=False), round_seed=0
    )
    assert not np.allclose(loose.state, result.state)


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.05, 9.5), min_size=3, max_size=3),
    st.lists(st.floats(-5, 5), min_size=3, max_size=3),
)
def test_stable_steps_on_a_quadratic_never_meet_the_bound(
    curvatures: list[float], drift: list[float]
) -> None:
    """Steps with eta lam < 2 shrink every component of the bracket, so exactness does not rest on it."""
    task, flat = quadratic(torch.tensor(curvatures, dtype=torch.float64))
    given_ = Assignment(flat.state(), np.array(drift))
    steady, loose = (
        run_window(task, flat, given_, Plan(0.2, epochs=15, steady=steady), round_seed=0).state
        for steady in (True, False)
    )
    np.testing.assert_allclose(steady, loose, rtol=1e-13, atol=1e-13)


def test_a_drift_that_makes_steps_unstable_does_not_carry_a_steady_window_away() -> None:
    task, flat = quadratic(torch.tensor([12.0, 0.1], dtype=torch.float64))  # eta lam = 2.4
    given_ = Assignment(flat.state(), np.array([3.0, 0.0]))
    ends = [
        float(
            np.abs(
                run_window(task, flat, given_, Plan(0.2, epochs=40, steady=steady), round_seed=0).state
            ).max()
        )
        for steady in (True, False)
    ]
    assert ends[0] < 5
    assert ends[1] > 1e4


def test_an_epoch_shows_every_sample_once() -> None:
    task, flat, recorder = make(23)
    result = run_window(task, flat, Assignment(flat.state()), Plan(0.1, epochs=2, batch_size=5), round_seed=0)
    seen = torch.cat([x for x, _ in recorder.batches])
    assert result.samples_seen == len(seen) == 46
    for epoch in (seen[:23], seen[23:]):
        torch.testing.assert_close(epoch.sort(dim=0).values, task.data[0].sort(dim=0).values)
    assert not torch.equal(seen[:23], seen[23:])


@given(samples=st.integers(1, 500), batch_size=st.integers(1, 100))
def test_batches_cover_the_samples_and_none_is_a_left_over_single(samples: int, batch_size: int) -> None:
    sizes = Plan(0.1, batch_size=batch_size).batches(samples)
    assert sum(sizes) == samples
    assert batch_size == 1 or samples == 1 or min(sizes) > 1
    assert max(sizes) <= batch_size + 1


@given(steps=st.integers(1, 60), schedule=st.sampled_from(["constant", "cosine", "step"]))
def test_schedules_start_at_the_rate_never_rise_and_stay_positive(steps: int, schedule: Any) -> None:
    rates = Plan(0.3, schedule).rates(steps)
    assert len(rates) == steps
    assert rates[0] == pytest.approx(0.3)
    assert min(rates) > 0
    assert all(a >= b for a, b in itertools.pairwise(rates))


def test_time_under_a_schedule_is_the_sum_of_its_rates() -> None:
    task, flat, _ = make()
    plan = Plan(0.1, "cosine", epochs=2, batch_size=8)
    result = run_window(task, flat, Assignment(flat.state(), weight=0.5), plan, round_seed=0)
    assert result.time == pytest.approx(sum(plan.rates(result.steps)) / 0.5)


@settings(max_examples=10)
@given(seed=st.integers(0, 9), round_seed=st.integers(0, 9))
def test_equal_seeds_give_equal_bits_and_the_callers_random_state_is_untouched(
    seed: int, round_seed: int
) -> None:
    task, flat, _ = make(dropout=0.5)
    assignment = Assignment(flat.state())
    plan = Plan(0.1, batch_size=8, seed=seed)
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    first = run_window(task, flat, assignment, plan, round_seed=round_seed)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = run_window(task, flat, assignment, plan, round_seed=round_seed)
    other = run_window(task, flat, assignment, plan, round_seed=round_seed + 1)
    np.testing.assert_array_equal(first.state, again.state)
    assert not np.array_equal(first.state, other.state)


def test_losses_are_measured_at_both_ends_in_eval_mode_or_not_at_all() -> None:
    task, flat, _ = make(dropout=0.5)
    start = flat.state()
    result = run_window(task, flat, Assignment(start), Plan(0.3, epochs=20), round_seed=0)
    for state, measured in ((start, result.loss_before), (result.state, result.loss_after)):
        flat.load(state)
        with flat.mode(training=False):
            assert measured == pytest.approx(task.mean_loss(flat.model, task.data).item())
    assert result.loss_after is not None
    assert result.loss_before is not None
    assert result.loss_after < result.loss_before
    silent = run_window(task, flat, Assignment(start), Plan(0.3, loss_samples=0), round_seed=0)
    assert silent.loss_before is None
    assert silent.loss_after is None


def test_cancellation_stops_before_the_next_step() -> None:
    task, flat, recorder = make()
    with pytest.raises(Cancelled, match="step 2 of 5"):
        run_window(
            task,
            flat,
            Assignment(flat.state()),
            Plan(0.1, batch_size=5),
            round_seed=0,
            cancelled=lambda: len(recorder.batches) == 2,
        )
    assert len(recorder.batches) == 2


@pytest.mark.parametrize("bad", [0, 40, 63, 64, 70])
def test_a_loss_that_is_not_finite_names_step_rate_and_remedy(bad: int) -> None:
    calls = iter(range(1000))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = cross_entropy_on_pairs(model, batch)
        return value * math.nan if model.training and next(calls) == bad else value

    task, flat, _ = make()
    task = replace(task, loss=loss)
    plan = Plan(0.25, epochs=71, batch_size=100)
    with pytest.raises(
        TaskError, match=rf"nan at step {bad} with learning rate 0\.25 .*lower the learning rate"
    ):
        run_window(task, flat, Assignment(flat.state()), plan, round_seed=0)


def test_a_state_that_overflows_in_the_last_step_is_an_error() -> None:
    model = nn.Linear(1, 1)
    task = Task(model, (torch.ones(2, 1),), loss=lambda m, batch: 1e30 * m(batch[0]).mean())
    flat = FlatModel(model, CPU)
    with pytest.raises(TaskError, match="state is not finite at step 0"):
        run_window(task, flat, Assignment(flat.state()), Plan(1e10), round_seed=0)


def test_an_assignment_that_is_not_finite_is_blamed_on_its_sender() -> None:
    task, flat, _ = make()
    start = np.full(flat.layout.size, np.nan)
    with pytest.raises(TaskError, match="given is not finite"):
        run_window(task, flat, Assignment(start), Plan(0.1), round_seed=0)


def test_buffers_are_trained_along() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    data = torch.randn(11, 2) + 5, torch.randint(0, 2, (11,))
    flat = FlatModel(model, CPU)
    start = flat.state()
    result = run_window(Task(model, data), flat, Assignment(start), Plan(0.1, batch_size=5), round_seed=0)
    assert result.state.shape == (flat.layout.size,)
    assert not np.allclose(result.state[flat.d :], start[flat.d :])
    assert result.steps == 2  # 5 and 6: a single sample would break BatchNorm


def test_a_dataset_and_its_tensors_train_alike() -> None:
    task, flat, _ = make()
    pairs = list(zip(*task.data, strict=True))
    assignment, plan = Assignment(flat.state()), Plan(0.1, batch_size=4)
    fast = run_window(task, flat, assignment, plan, round_seed=0)
    slow = run_window(replace(task, data=pairs), flat, assignment, plan, round_seed=0)
    np.testing.assert_array_equal(fast.state, slow.state)


def test_mixed_precision_stays_near_full_precision() -> None:
    model = nn.Linear(4, 3)
    task = Task(model, (torch.randn(16, 4), torch.randint(0, 3, (16,))))
    flat = FlatModel(model, CPU)
    assignment, plan = Assignment(flat.state()), Plan(0.1, batch_size=4)
    full = run_window(task, flat, assignment, plan, round_seed=0)
    mixed = run_window(task, flat, assignment, replace(plan, precision="bf16"), round_seed=0)
    np.testing.assert_allclose(mixed.state, full.state, atol=1e-2)
    assert not np.array_equal(mixed.state, full.state)
    assert mixed.state.dtype == np.float32


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, batch: 1 / 0, "ZeroDivisionError"),
        (lambda model, batch: 1.5, "returned float"),
        (lambda model, batch: model(batch[0]), "shape"),
        (lambda model, batch: torch.tensor(1.0), "backward pass failed at step 0"),
    ],
)
def test_a_failing_loss_says_what_to_fix(loss: Any, message: str) -> None:
    task, flat, _ = make()
    with pytest.raises(TaskError, match=message):
        run_window(replace(task, loss=loss), flat, Assignment(flat.state()), Plan(0.1), round_seed=0)


def test_a_loss_that_replaces_parameters_is_noticed() -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        model.weight = nn.Parameter(model.weight.detach().clone())  # type: ignore[operator]  # a plain Linear
        return functional.cross_entropy(model(batch[0]), batch[1])

    model = nn.Linear(2, 2)
    task = Task(model, (torch.randn(4, 2), torch.tensor([0, 1, 0, 1])), loss=loss)
    flat = FlatModel(model, CPU)
    with pytest.raises(TaskError, match="weight was replaced"):
        run_window(task, flat, Assignment(flat.state()), Plan(0.1), round_seed=0)


def test_a_drift_of_the_wrong_length_is_refused() -> None:
    task, flat, _ = make()
    with pytest.raises(LayoutError, match="drift"):
        run_window(task, flat, Assignment(flat.state(), np.zeros(3)), Plan(0.1), round_seed=0)


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 0.0},
        {"rate": math.nan},
        {"schedule": "linear"},
        {"epochs": 0},
        {"epochs": 1.5},
        {"batch_size": 0},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"clip": 0.0},
        {"seed": -1},
        {"precision": "fp8"},
        {"loss_samples": -1},
    ],
)
def test_a_plan_out_of_range_names_its_field(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        Plan(**{"rate": 0.1, **change})


def test_an_assignment_out_of_range_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        *({"weight": 0.0}, {"weight": math.inf}),
        *({"pull": -1.0}, {"pull": math.nan}),
        *({"after": -1.0}, {"after": math.nan}, {"after": math.inf}),
    ]
    for values in wrong:
        with pytest.raises(ConfigError):
            Assignment(np.zeros(1), **values)


def test_the_rest_of_a_drift_is_added_when_the_window_is_over() -> None:
    """after tau b, with tau = w T; to parameters, and not to buffers."""
    state = np.array([1.0, 2.0, 3.0], np.float32)
    given_ = Assignment(np.zeros(3, np.float32), np.array([4.0, -4.0], np.float32), weight=2.0, after=0.5)
    given_.settle(state, 0.25)
    np.testing.assert_array_equal(state, [2.0, 1.0, 3.0])
    replace(given_, after=0.0).settle(state, 0.25)
    replace(given_, drift=None).settle(state, 0.25)
    np.testing.assert_array_equal(state, [2.0, 1.0, 3.0])


def test_where_gradients_are_the_same_everywhere_it_does_not_matter_when_a_drift_is_added() -> None:
    plane = Task(nn.Linear(2, 1, bias=False), (torch.ones(6, 2),), lambda m, batch: m(batch[0]).mean())
    flat = FlatModel(plane.model, torch.device("cpu"))
    start, flow = np.ones(2, np.float32), np.array([3, -1], np.float32)
    ends = []
    for after in (0.0, 0.7):
        given_ = Assignment(start, flow / np.float32(1 + after), weight=1.5, after=after)
        result = run_window(plane, flat, given_, Plan(0.1, batch_size=2, steady=False), round_seed=0)
        given_.settle(result.state, result.time)
        ends.append(result.state)
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6)
