"""Who holds which labels: the partition of a task's data as numbers and as a picture."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import TaskError
from fedecado.simulator.drawing import pyplot, save, tidy

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Samples by client (rows) and label (columns)."""

    counts: Counts

    @property
    def sizes(self) -> Counts:
        """Samples of each client."""
        return np.asarray(self.counts.sum(1))

    def effective_labels(self) -> npt.NDArray[np.float64]:
        """How many labels each client has in effect: the exponential of their entropy."""
        shares = self.counts / np.maximum(self.sizes[:, None], 1)
        logs = np.log(np.where(shares > 0, shares, 1.0))
        return np.asarray(np.exp(-(shares * logs).sum(1)))

    def skew(self) -> float:
        """Mean distance (total variation, 0 to 1) of a client's label shares from everybody's."""
        everybody = self.counts.sum(0) / self.counts.sum()
        shares = self.counts / np.maximum(self.sizes[:, None], 1)
        return float(np.mean(np.abs(shares - everybody).sum(1) / 2))


def distribution(spec: str, arguments: Mapping[str, Any], clients: int, seed: int) -> Distribution:
    """Count the labels of a task whose data are (inputs, one label per sample)."""
    from fedecado.client.task import Context, load_task

    held = []
    for index in range(clients):
        data = load_task(spec, Context(index, clients, seed), arguments).data
        labels = data[1] if isinstance(data, tuple) and len(data) > 1 else None
        if labels is None or labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
            raise TaskError(
                f"{spec} has no label per sample to count; its data must be a tuple (inputs, class indices)"
            )
        held.append(labels.cpu().numpy())
    classes = 1 + max(int(labels.max()) for labels in held)
    return Distribution(np.stack([np.bincount(labels, minlength=classes) for labels in held]))


def draw(found: Distribution, path: Path, title: str) -> None:
    """The bars as a file."""
    save(bars(found, title), path)


def bars(found: Distribution, title: str) -> Any:
    """A figure with one bar per client, as high as it has samples, coloured by label."""
    plt = pyplot()
    clients, labels = found.counts.shape
    figure, axis = plt.subplots(figsize=(max(6.0, min(16.0, clients / 8)), 4), layout="constrained")
    few = labels <= 10
    colours = plt.get_cmap("tab10" if few else "viridis")
    below = np.zeros(clients)
    for label in range(labels):
        own = found.counts[:, label]
        colour = colours(label if few else label / labels)
        axis.bar(np.arange(clients), own, bottom=below, width=1.0, color=colour, label=str(label))
        below += own
    axis.set(xlabel="client", ylabel="samples", title=title, xlim=(-0.5, clients - 0.5))
    tidy(axis)
    if labels <= 20:
        axis.legend(
            title="label", fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5)
        )
    return figure
