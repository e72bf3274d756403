"""How a built-in task deals its samples out to clients, by name and from a seed."""

from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedecado.client import partition as deal
from fedecado.common.errors import ConfigError, DataError

Partition = Literal["dirichlet", "iid", "shards", "quantity", "writers"]


class Dealing(NamedTuple):
    """A partition by name, with the knobs of all of them; each uses its own."""

    partition: Partition = "dirichlet"
    alpha: float = 0.1
    shards: int = 2
    sigma: float = 1.0
    least: int = 10
    writers: str | None = None

    def parts(self, labels: deal.Labels, clients: int, seed: int, kept: deal.Labels) -> list[deal.Indices]:
        """Indices of each client's samples; `kept` are their places in the whole data set."""
        rng = np.random.default_rng(seed)
        match self.partition:
            case "iid":
                return deal.iid(len(labels), clients, rng)
            case "quantity":
                return deal.quantity(len(labels), clients, self.sigma, rng)
            case "shards":
                return deal.shards(labels, clients, self.shards, rng)
            case "writers":
                return _by_writer(read_writers(self.writers)[kept], clients, rng)
            case "dirichlet":
                # Half an even share where there are too many clients for the usual ten samples each.
                least = max(1, min(self.least, len(labels) // (2 * clients)))
                return deal.dirichlet(labels, clients, self.alpha, rng, least)
        names = ", ".join(get_args(Partition))
        raise ConfigError(f"partition is {self.partition!r}; it must be one of {names}")


def read_writers(file: str | None) -> deal.Labels:
    """Who wrote each training image: an .npy file, or an .npz file's array `train_writer` or only one."""
    if file is None:
        raise ConfigError("partition=writers needs a file of writer ids; give writers=FILE (.npy or .npz)")
    try:
        content = np.load(Path(file).expanduser(), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the writer ids in {file}: {error}") from error
    if isinstance(content, np.ndarray):
        return content
    with content:
        name = "train_writer" if "train_writer" in content.files else content.files[0]
        if name != "train_writer" and len(content.files) > 1:
            raise DataError(f"{file} holds {', '.join(content.files)}; name the writer ids train_writer")
        found: npt.NDArray[np.int64] = content[name]
        return found


def _by_writer(writers: deal.Labels, clients: int, rng: np.random.Generator) -> list[deal.Indices]:
    """One writer per client where there are as many, else several writers each."""
    groups = deal.by_group(writers)
    if clients > len(groups):
        raise DataError(f"{len(groups)} writers cannot be dealt out to {clients} clients; use fewer clients")
    hands = np.array_split(rng.permutation(len(groups)), clients)
    return [np.sort(np.concatenate([groups[k] for k in hand])) for hand in hands]
