"""Step control: dyadic steps tile the window whatever the errors are."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import NonFiniteError
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.steps import Steps, integrate

Log = list[tuple[float, float]]
OPTIONS = Options(tolerance=1.0, max_level=6)

# Below, at and above a quarter of the tolerance, and the tolerance itself.
errors = st.sampled_from([0.1, 0.24, 0.25, 0.3, 0.5, 1.0, 1.01, 2.0])


def scripted(script: list[float], T: float = 1.0, level: int = 0) -> tuple[Log, Log, Steps]:
    """Run with the given errors, repeated; returns all attempts, the accepted steps and the summary."""
    attempts: Log = []
    source = itertools.cycle(script)

    def attempt(state: Log, tau: float, dt: float) -> tuple[Log, float]:
        attempts.append((tau, dt))
        return [*state, (tau, dt)], next(source)

    nothing: Log = []
    accepted, steps = integrate(attempt, nothing, T, level, OPTIONS)
    return attempts, accepted, steps


@given(script=st.lists(errors, min_size=1, max_size=40), level=st.integers(0, 9))
def test_accepted_steps_tile_the_window_exactly(script: list[float], level: int) -> None:
    attempts, accepted, steps = scripted(script, level=level)
    position = Fraction(0)
    for tau, dt in accepted:
        assert Fraction(tau) == position
        assert math.log2(dt) == int(math.log2(dt)) and dt >= 2.0**-6
        # A step starts at a multiple of its length, so that longer ones still fit.
        assert position % Fraction(dt) == 0
        position += Fraction(dt)
    assert position == 1
    assert steps.accepted == len(accepted)
    assert steps.rejected == len(attempts) - len(accepted)
    assert steps.shortest == min(dt for _, dt in accepted)


@given(script=st.lists(errors, min_size=1, max_size=40))
def test_steps_follow_the_rule_of_the_page(script: list[float]) -> None:
    """Above delta halve, below delta / 4 double if it fits, else keep the length."""
    attempts, _, steps = scripted(script)
    given_errors = list(itertools.islice(itertools.cycle(script), len(attempts)))
    floor = 2.0**-6
    for (tau, dt), error, (_, then) in zip(attempts, given_errors, attempts[1:], strict=False):
        if error > 1.0 and dt > floor:
            assert then == dt / 2
        elif error < 0.25 and dt < 1.0 and Fraction(tau + dt) % Fraction(2 * dt) == 0:
            assert then == 2 * dt
        else:
            assert then == dt
    assert steps.rejected == sum(
        e > 1.0 and dt > floor for (_, dt), e in zip(attempts, given_errors, strict=True)
    )


def test_at_the_shortest_step_the_error_is_accepted_and_counted() -> None:
    _, accepted, steps = scripted([5.0])
    assert len(accepted) == 64
    assert steps == Steps(accepted=64, rejected=6, floored=64, level=6, shortest=2.0**-6, error=5.0)


def test_the_level_is_carried_into_the_next_window() -> None:
    _, _, first = scripted([2.0, 2.0, 0.5])
    attempts, _, _ = scripted([0.5], level=first.level)
    assert first.level > 0
    assert attempts[0][1] == 2.0**-first.level


def test_a_level_beyond_the_shortest_step_starts_at_the_shortest() -> None:
    attempts, _, _ = scripted([0.5], level=50)
    assert attempts[0] == (0.0, 2.0**-6)


def test_windows_of_any_length_end_at_their_end() -> None:
    _, accepted, steps = scripted([2.0, 0.5, 0.1], T=0.3)
    tau, dt = accepted[-1]
    assert math.isclose(tau + dt, 0.3, rel_tol=1e-15)
    assert math.isclose(sum(dt for _, dt in accepted), 0.3, rel_tol=1e-15)
    assert steps.error == 0.5


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_an_error_that_is_not_finite_raises(error: float) -> None:
    with pytest.raises(NonFiniteError, match="state is unchanged"):
        scripted([0.5, error], level=2)
