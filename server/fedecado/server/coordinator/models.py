"""The models a run leaves on disk: the last and the best, as safetensors."""

import json
from collections.abc import Mapping
from pathlib import Path

from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import save_model


class ModelFiles:
    """The folder of a run."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder, self.run_id = folder, run_id

    def path(self, which: str) -> Path:
        return self.folder / f"{which}.safetensors"

    def save(
        self, which: str, layout: Layout, state: Vector, version: int, metrics: Mapping[str, float]
    ) -> Path:
        """Write `last` or `best`; the old file stays until the new one is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        metadata = {
            "run_id": self.run_id,
            "version": str(version),
            "metrics": json.dumps(dict(metrics)),
        }
        save_model(self.path(which), layout, state, metadata)
        return self.path(which)
