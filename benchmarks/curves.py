"""`python -m benchmarks.curves PICTURE FOLDER ...`: accuracy against rounds, over the seeds of each."""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq
from matplotlib.figure import Figure

Key = tuple[str, str]


def curves(folders: list[Path]) -> dict[Key, dict[int, list[float]]]:
    """(setting, algorithm) -> round -> accuracy of every seed; a folder's only setting goes by its name."""
    found: dict[Key, dict[int, list[float]]] = {}
    for folder in folders:
        rows = pq.read_table(folder / "results.parquet").to_pylist()
        alone = len({row["setting"] for row in rows}) == 1
        for row in rows:
            if row["metric.accuracy"] is not None:
                rounds = found.setdefault((folder.name if alone else row["setting"], row["algorithm"]), {})
                rounds.setdefault(row["round"], []).append(row["metric.accuracy"])
    return found


def draw(found: dict[Key, dict[int, list[float]]], picture: Path) -> None:
    mpl.rcParams["svg.hashsalt"] = "fedecado"  # the same picture has the same bytes
    settings = list(dict.fromkeys(setting for setting, _ in found))
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(name for _, name in found))}
    lines = {}
    figure = Figure(figsize=(4 * len(settings), 3.4), layout="constrained")
    panels = figure.subplots(1, len(settings), squeeze=False)[0]
    for panel, setting in zip(panels, settings, strict=True):
        for (where, algorithm), rounds in found.items():
            if where != setting:
                continue
            x = sorted(rounds)
            low, middle, high = ([f(rounds[r]) for r in x] for f in (np.min, np.mean, np.max))
            width, colour = 2 if algorithm == "fedecado" else 1, colours[algorithm]
            (lines[algorithm],) = panel.plot(x, middle, color=colour, linewidth=width)
            panel.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)
        panel.set(title=setting, xlabel="round", ylabel="accuracy")
        panel.grid(alpha=0.3)
    ncols = min(8, 2 * len(settings))  # as many as fit below the panels
    figure.legend(
        list(lines.values()), list(lines), loc="outside lower center", ncols=ncols, fontsize="small"
    )
    figure.savefig(picture, metadata={"Date": None, "Title": "Accuracy against rounds"})


if __name__ == "__main__":
    draw(curves([Path(folder) for folder in sys.argv[2:]]), Path(sys.argv[1]))
