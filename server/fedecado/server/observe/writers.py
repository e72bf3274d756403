"""The writers that a run was asked for, each behind an extra of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fedecado.common.errors import ConfigError
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.run import Run
from fedecado.server.observe.scribe import Scribe, Writer


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Where else rounds and measurements are written to; none for nowhere."""

    tensorboard: Path | None = None
    """Folder that holds a folder per run."""
    mlflow: str | None = None
    """Tracking URI, or a folder."""


def open_writers(ledgers: Ledgers, run: Run, about: About) -> list[Scribe]:
    """A scribe for each; ConfigError if a package is missing. They load when there is something to write."""
    made = []
    if (folder := ledgers.tensorboard) is not None:
        made.append(_scribe("TensorBoard", "tensorboard", lambda: _tensorboard(folder / about.name)))
    if (uri := ledgers.mlflow) is not None:
        made.append(_scribe("MLflow", "mlflow", lambda: _mlflow(uri, run, about)))
    return made


def _scribe(name: str, package: str, open_writer: Callable[[], Writer]) -> Scribe:
    if find_spec(package) is None:
        raise ConfigError(
            f"{name} needs {package}; install fedecado[{package}], or leave observe.{package} out"
        )
    return Scribe(name, open_writer)


def _tensorboard(folder: Path) -> Writer:
    from fedecado.server.observe.tensorboard import TensorBoard

    return TensorBoard(folder)


def _mlflow(uri: str, run: Run, about: About) -> Writer:
    from fedecado.server.observe.mlflow import MlFlow

    described = {"algorithm": about.algorithm, "mode": run.engine.rules.mode, "software": about.software}
    return MlFlow(uri, about.name, run.files.run_id, described)
