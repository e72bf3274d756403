"""matplotlib, imported when something is drawn and set up for files."""

from pathlib import Path
from typing import Any

from fedecado.common.errors import ConfigError


def pyplot() -> Any:
    """The module `matplotlib.pyplot`; it comes with the extra `report`."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ConfigError("plots need matplotlib; install fedecado[report]") from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Write a figure by the file's ending, and let go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=120)
    except ValueError as error:
        raise ConfigError(f"cannot draw {path.name}: {error}; use .png, .svg or .pdf") from error
    finally:
        pyplot().close(figure)


def tidy(axis: Any) -> None:
    """A light grid and no box."""
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
