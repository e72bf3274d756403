"""How clients follow their flows: sketches keep inner products, and liars stand out whatever their data."""

import numpy as np
import pytest

from fedecado.common.layout import Vector
from fedecado.server.numerics.columns import BLOCK, STRIPE
from fedecado.server.numerics.response import WIDTH, Response, distrusted, sketches


def answers(sign: float, *, updates: int = 5, noise: float = 0.0, seed: int = 0) -> Response:
    """A client with a quadratic loss of its own, whose flow changes from one update to the next."""
    rng = np.random.default_rng(seed)
    slope, flow = rng.standard_normal(WIDTH), np.zeros(WIDTH)
    known: Response | None = None
    for _ in range(updates):
        rate = sign * (0.8 * flow - slope) + noise * rng.standard_normal(WIDTH)
        known = Response(rate, flow) if known is None else known.then(rate, flow)
        flow = flow + 0.3 * rng.standard_normal(WIDTH)
    assert known is not None
    return known


@pytest.mark.parametrize("size", [1, WIDTH - 1, WIDTH + 1, BLOCK + 7, STRIPE + BLOCK + 3])
def test_a_sketch_is_linear_and_keeps_inner_products(size: int) -> None:
    rng = np.random.default_rng(size)
    a: Vector = rng.standard_normal(size).astype(np.float32)
    b: Vector = (0.5 * a + rng.standard_normal(size)).astype(np.float32)
    of_a, of_b, of_both, nothing = sketches([a, b, a + b, None], size)
    np.testing.assert_allclose(of_both, of_a + of_b, rtol=1e-4, atol=1e-3)
    assert not nothing.any()
    room = 5 * np.linalg.norm(a) * np.linalg.norm(b) / np.sqrt(WIDTH)
    assert of_a @ of_b == pytest.approx(float(a @ b), abs=room)


def test_a_client_is_judged_from_the_second_flow_on() -> None:
    assert answers(1, updates=1).value is None
    value = answers(1, updates=2).value
    assert value == pytest.approx(0.8)


@pytest.mark.parametrize("seed", range(5))
def test_whoever_sends_the_opposite_of_its_work_goes_against_its_flow(seed: int) -> None:
    honest, liar = answers(1, noise=0.2, seed=seed).value, answers(-1, noise=0.2, seed=seed).value
    assert honest is not None and liar is not None
    assert 0.5 < honest < 1.1
    assert -1.1 < liar < -0.5


def test_liars_and_exaggerators_are_not_believed_and_newcomers_are() -> None:
    clients = {f"honest-{i}": answers(1, seed=i) for i in range(5)}
    clients |= {"liar": answers(-1, seed=9), "loud": answers(100, seed=8), "new": answers(-1, updates=1)}
    assert distrusted(clients, 4.0) == {"liar", "loud"}
    assert distrusted({"liar": answers(-1)}, 4.0) == {"liar"}, "also where nobody else is there"
    assert distrusted({"one": answers(1), "two": answers(-1), "three": answers(-1)}, 4.0) == {"two", "three"}
    assert distrusted({}, 4.0) == set()


def test_a_flow_that_hardly_changes_tells_nothing_new() -> None:
    rng, known = np.random.default_rng(1), answers(-1)
    for _ in range(100):  # at rest, rates change by chance
        known = known.then(rng.standard_normal(WIDTH), known.flow + 1e-3 * rng.standard_normal(WIDTH))
    assert known.value == answers(-1).value


def test_a_client_that_mends_its_ways_is_believed_again() -> None:
    rng, known = np.random.default_rng(1), answers(-1)
    judged = []
    for _ in range(10):
        flow = known.flow + 0.3 * rng.standard_normal(WIDTH)
        known = known.then(known.rate + (flow - known.flow), flow)
        judged.append(bool(distrusted({"a": known}, 4.0)))
    assert judged[0] and not judged[-1]


def test_what_overflows_is_not_taken_for_an_answer() -> None:
    known, flow = answers(-1), np.full(WIDTH, 1e200)
    assert known.then(np.full(WIDTH, 1e200), flow).value == known.value


def test_what_is_remembered_comes_back_from_a_vector() -> None:
    known = answers(1)
    again = Response.unpack(known.pack())
    assert again.pack().tobytes() == known.pack().tobytes()
    assert again.value == known.value
