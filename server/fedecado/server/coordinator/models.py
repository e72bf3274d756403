"""The models a run leaves on disk: the last and the best, as safetensors."""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import final

from fedecado.common.errors import FedecadoError
from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import load_model, save_model
from fedecado.common.private_files import private_folder

log = logging.getLogger(__name__)


@final
class ModelFiles:
    """The folder of a run."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder, self.run_id = folder, run_id

    def path(self, which: str) -> Path:
        return self.folder / f"{which}.safetensors"

    def holds(self, which: str, version: int) -> bool:
        """Whether the file is there, whole, and of this version."""
        try:
            return load_model(self.path(which))[2].get("version") == str(version)
        except (OSError, FedecadoError):
            return False

    def save(
        self, which: str, layout: Layout, state: Vector, version: int, metrics: Mapping[str, float]
    ) -> tuple[float, bool]:
        """Write `last` or `best`; the old file stays until the new one is whole. Seconds, and success."""
        began = time.perf_counter()
        metadata = {
            "run_id": self.run_id,
            "version": str(version),
            "metrics": json.dumps(dict(metrics)),
        }
        try:
            private_folder(self.folder)
            save_model(self.path(which), layout, state, metadata)
        except (OSError, FedecadoError) as error:
            # The run goes on: its model is in memory, and in its store if it has one.
            log.error("the %s model could not be saved: %s", which, error)
            return time.perf_counter() - began, False
        return time.perf_counter() - began, True
