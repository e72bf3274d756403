"""Partitions cover every sample once, and have the skew that was asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.client.partition import Indices, by_group, dirichlet, iid, quantity, shards
from fedecado.common.errors import ConfigError, DataError

seeds = st.integers(0, 2**31)


def covers(parts: list[Indices], n_samples: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(n_samples))


@given(n=st.integers(1, 300), clients=st.integers(1, 40), seed=seeds)
def test_iid_shares_are_equal(n: int, clients: int, seed: int) -> None:
    clients = min(clients, n)
    parts = iid(n, clients, np.random.default_rng(seed))
    assert covers(parts, n)
    sizes = [len(part) for part in parts]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


@given(n=st.integers(1, 300), clients=st.integers(1, 40), sigma=st.floats(0, 1e6), seed=seeds)
def test_quantity_shares_leave_nobody_empty(n: int, clients: int, sigma: float, seed: int) -> None:
    clients = min(clients, n)
    parts = quantity(n, clients, sigma, np.random.default_rng(seed))
    assert covers(parts, n)
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= 1


@settings(deadline=None)
@given(
    n=st.integers(1, 300),
    classes=st.integers(1, 12),
    clients=st.integers(1, 30),
    alpha=st.floats(1e-4, 1e4),
    seed=seeds,
)
def test_dirichlet_shares_have_their_minimum_size(
    n: int, classes: int, clients: int, alpha: float, seed: int
) -> None:
    clients = min(clients, n)
    rng = np.random.default_rng(seed)
    least = n // clients
    parts = dirichlet(rng.integers(0, classes, n), clients, alpha, rng, least)
    assert covers(parts, n)
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= least


@given(n=st.integers(1, 300), clients=st.integers(1, 20), hand=st.integers(1, 4), seed=seeds)
def test_shards_hold_few_labels(n: int, clients: int, hand: int, seed: int) -> None:
    n = max(n, clients * hand)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, n)
    parts = shards(labels, clients, hand, rng)
    assert covers(parts, n)
    assert len(parts) == clients
    # A shard of consecutive sorted labels spans its own labels only; 5 classes make 4 borders in all.
    assert sum(len(np.unique(labels[part])) for part in parts) <= clients * hand + 4


@given(st.lists(st.sampled_from(["ann", "bob", "cy"]), min_size=1, max_size=50))
def test_groups_become_clients(groups: list[str]) -> None:
    parts = by_group(np.array(groups))
    assert covers(parts, len(groups))
    assert [{groups[i] for i in part} for part in parts] == [{name} for name in sorted(set(groups))]


def test_a_small_alpha_skews_labels_and_a_large_one_does_not() -> None:
    labels = np.repeat(np.arange(10), 600)

    def largest_class(alpha: float) -> float:
        parts = dirichlet(labels, 10, alpha, np.random.default_rng(0))
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert largest_class(0.1) > 0.4
    assert largest_class(1000) < 0.15


def test_a_client_with_an_even_share_gets_nothing_more() -> None:
    labels = np.repeat([0, 1], 50)
    for seed in range(10):
        # So small an alpha gives each class to one client whole.
        parts = dirichlet(labels, 2, 1e-4, np.random.default_rng(seed), min_size=0)
        assert [len(part) for part in parts] == [50, 50]


def test_a_thousand_clients_get_their_ten_samples_and_stay_skewed() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    parts = dirichlet(labels, 1000, 0.1, np.random.default_rng(1))
    assert covers(parts, 60000)
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() >= 10
    assert np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]) > 0.4


@pytest.mark.parametrize(
    "deal",
    [
        lambda rng: iid(50, 5, rng),
        lambda rng: quantity(50, 5, 1.0, rng),
        lambda rng: dirichlet(np.arange(50) % 3, 5, 0.5, rng, 2),
        lambda rng: shards(np.arange(50) % 3, 5, 2, rng),
    ],
)
def test_equal_seeds_deal_equally(deal: Callable[[np.random.Generator], list[Indices]]) -> None:
    first, again, other = (deal(np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("deal", "error", "message"),
    [
        (lambda rng: iid(3, 4, rng), DataError, "3 samples cannot give 4 clients"),
        (lambda rng: iid(3, 0, rng), ConfigError, "clients is 0"),
        (lambda rng: quantity(3, 2, -1.0, rng), ConfigError, "sigma"),
        (lambda rng: dirichlet(np.zeros(50), 6, 0.1, rng), DataError, "50 samples .* at least 10"),
        (lambda rng: dirichlet(np.zeros(50), 5, 0.0, rng), ConfigError, "alpha"),
        (lambda rng: dirichlet(np.zeros(50), 5, 1.0, rng, -1), ConfigError, "min_size"),
        (lambda rng: dirichlet(np.zeros((5, 2)), 5, 1.0, rng), DataError, r"\(5, 2\)"),
        (lambda rng: shards(np.zeros(5), 3, 2, rng), DataError, "5 samples"),
        (lambda rng: shards(np.zeros(5), 3, 0, rng), ConfigError, "shards_per_client"),
        (lambda rng: by_group(np.array([])), DataError, "not empty"),
    ],
)
def test_what_cannot_be_dealt_is_refused(
    deal: Callable[[np.random.Generator], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        deal(np.random.default_rng(0))
