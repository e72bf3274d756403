"""A picture of a run: its metrics, the speed of the centre and the steps of the solve."""

from pathlib import Path
from typing import Any

from fedecado.simulator.drawing import pyplot, save, tidy
from fedecado.simulator.history import History


def plot(histories: dict[str, History], path: Path) -> None:
    """Draw one or several runs (by name) into a PNG, SVG or PDF file."""
    metrics = list(dict.fromkeys(name for history in histories.values() for name in history.metrics()))
    figure, grid = pyplot().subplots(
        1, len(metrics) + 1, figsize=(5 * (len(metrics) + 1), 4), layout="constrained", squeeze=False
    )
    axes = grid[0]
    for axis, metric in zip(axes, metrics, strict=False):
        for name, history in histories.items():
            axis.plot(*history.series(metric), label=name)
        axis.set(xlabel="round", title=metric)
        if metric in ("distance", "loss"):
            axis.set_yscale("log")
    _draw_rate(axes[-1], histories)
    for axis in axes:
        tidy(axis)
        axis.legend(frameon=False)
    save(figure, path)


def _draw_rate(axis: Any, histories: dict[str, History]) -> None:
    for name, history in histories.items():
        axis.plot(
            [r.round for r in history.rounds], [max(r.rate, 1e-300) for r in history.rounds], label=name
        )
    axis.set(xlabel="round", title="speed of the centre, ‖dx_c/dt‖", yscale="log")
