"""Rounds and measurements as metrics of an MLflow run."""

import os
import re
from collections.abc import Mapping
from typing import Final, final

# The user named a folder, and a coordinator calls nobody that it was not told to call.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from fedecado.server.observe.scribe import Entry

EXPERIMENT: Final = "fedecado"
RUN_ID: Final = "fedecado.run_id"
_FORBIDDEN: Final = re.compile(r"[^\w./ -]", re.ASCII)


@final
class MlFlow:
    """An MLflow run of the same name; a fedecado run that goes on goes on there, too."""

    def __init__(self, uri: str, name: str, run_id: str, about: Mapping[str, str]) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        found = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
        earlier = self._client.search_runs([experiment], f"tags.`{RUN_ID}` = '{run_id}'", max_results=1)
        if earlier:
            self._run = earlier[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        self._run = self._client.create_run(experiment, tags={RUN_ID: run_id}, run_name=name).info.run_id
        self._client.log_batch(self._run, params=[Param(key, value) for key, value in about.items()])

    def write(self, entry: Entry) -> None:
        at = int(entry.at * 1000)
        # A task may name its metrics as it likes, MLflow does not take every letter.
        values = {_FORBIDDEN.sub("_", name): value for name, value in entry.values.items()}
        metrics = [Metric(name, value, at, entry.step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, *, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")
