"""Ways to deal one data set out to many clients.

Each function returns one sorted index array per client; together they hold every sample exactly once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import ConfigError, DataError

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[Any]

# Draws after which `dirichlet` settles for its best one and tops up the clients that are short.
_ATTEMPTS = 10


def iid(n_samples: int, clients: int, rng: np.random.Generator) -> list[Indices]:
    """Equal shares (to within one sample) of a random permutation."""
    _check_enough(n_samples, clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(n_samples), clients)]


def quantity(n_samples: int, clients: int, sigma: float, rng: np.random.Generator) -> list[Indices]:
    """Shares of log-normal size with spread `sigma` (0 = equal), at least one sample each."""
    if not 0 <= sigma < np.inf:
        raise ConfigError(f"sigma is {sigma}; it must be 0 or positive, and finite")
    _check_enough(n_samples, clients)
    logs = rng.normal(0.0, sigma, clients)
    shares = np.exp(logs - logs.max())  # the largest is 1, so that no sigma overflows
    ends = np.cumsum(shares) / shares.sum() * (n_samples - clients)
    cuts = np.rint(ends).astype(np.int64) + np.arange(1, clients + 1)
    return [np.sort(part) for part in np.split(rng.permutation(n_samples), cuts[:-1])]


def dirichlet(
    labels: Labels, clients: int, alpha: float, rng: np.random.Generator, min_size: int = 10
) -> list[Indices]:
    """Skewed label shares: each class is dealt out in proportions drawn from Dirichlet(alpha).

    As FedNova's experiments do, a client that already holds an even share gets nothing more, and a draw
    that leaves someone with fewer than `min_size` samples is drawn again. With many clients no draw may
    ever pass, so after some attempts the best one is kept and those short take from the largest.
    """
    labels = _as_labels(labels)
    if not 0 < alpha < np.inf:
        raise ConfigError(f"alpha is {alpha}; it must be positive and finite")
    if min_size < 0:
        raise ConfigError(f"min_size is {min_size}; it must be 0 or more")
    _check_enough(len(labels), clients, min_size)
    best = owners = _draw(labels, clients, alpha, rng)
    for _ in range(_ATTEMPTS - 1):
        if _smallest(best, clients) >= min_size:
            break
        owners = _draw(labels, clients, alpha, rng)
        best = max(best, owners, key=lambda drawn: _smallest(drawn, clients))
    _top_up(best, clients, min_size, rng)
    return _by_owner(best, clients)


def shards(labels: Labels, clients: int, shards_per_client: int, rng: np.random.Generator) -> list[Indices]:
    """Sort by label, cut into equal shards, deal each client `shards_per_client` of them at random."""
    labels = _as_labels(labels)
    if shards_per_client < 1:
        raise ConfigError(f"shards_per_client is {shards_per_client}; it must be at least 1")
    _check_enough(len(labels), clients, shards_per_client)
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, clients * shards_per_client)
    dealt = rng.permutation(len(pieces)).reshape(clients, shards_per_client)
    return [np.sort(np.concatenate([pieces[k] for k in hand])) for hand in dealt]


def by_group(groups: Labels) -> list[Indices]:
    """One client per distinct value of `groups` (writer, hospital ...), in sorted order."""
    groups = _as_labels(groups)
    values, owners = np.unique(groups, return_inverse=True)
    return _by_owner(owners.astype(np.int64), len(values))


def _draw(labels: Labels, clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    """The owner of every sample."""
    owners = np.empty(len(labels), np.int64)
    held = np.zeros(clients, np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        hungry = held < len(labels) / clients
        shares = rng.dirichlet(np.full(clients, alpha)) * hungry
        if not shares.sum() > 0:  # all of the class went to clients that are full
            shares = hungry.astype(np.float64)
        ends = np.rint(np.cumsum(shares) / shares.sum() * len(members)).astype(np.int64)
        counts = np.diff(ends, prepend=0)
        owners[members] = np.repeat(np.arange(clients), counts)
        held += counts
    return owners


def _top_up(owners: Indices, clients: int, min_size: int, rng: np.random.Generator) -> None:
    """Move samples from the largest client to those short of `min_size`, until there are none."""
    held = np.bincount(owners, minlength=clients)
    for poor in np.flatnonzero(held < min_size):
        while held[poor] < min_size:
            rich = int(held.argmax())
            count = min(min_size - held[poor], held[rich] - min_size)
            moved = rng.choice(np.flatnonzero(owners == rich), count, replace=False)
            owners[moved] = poor
            held[poor] += count
            held[rich] -= count


def _smallest(owners: Indices, clients: int) -> int:
    return int(np.bincount(owners, minlength=clients).min())


def _by_owner(owners: Indices, clients: int) -> list[Indices]:
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=clients))
    return [part.astype(np.int64, copy=False) for part in np.split(order, ends[:-1])]


def _as_labels(labels: Labels) -> Labels:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels):
        raise DataError(f"labels have shape {labels.shape}; they must be one value per sample, and not empty")
    return labels


def _check_enough(n_samples: int, clients: int, each: int = 1) -> None:
    if clients < 1:
        raise ConfigError(f"clients is {clients}; it must be at least 1")
    if n_samples < clients * each:
        raise DataError(
            f"{n_samples} samples cannot give {clients} clients at least {each} each; "
            "use fewer clients, more data or a smaller minimum"
        )
