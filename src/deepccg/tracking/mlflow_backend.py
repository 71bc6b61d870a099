"""MLflow; ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME`` and its other variables apply."""

import os
import re
import time
from collections.abc import Sequence
from typing import ClassVar

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from deepccg.core import InputError
from deepccg.tracking.tracker import MetricPoint, RunInfo

IDENTITY_TAG = "deepccg.id"
# The limits of one request to MLflow.
MAX_METRICS, MAX_PARAMETERS, MAX_PARAMETER_LENGTH = 1000, 100, 500


class MlflowBackend:
    """A run in MLflow, identified by a tag."""

    errors: ClassVar[tuple[type[Exception], ...]] = (MlflowException, OSError)

    def __init__(self, info: RunInfo) -> None:
        try:
            self._client, experiment = open_experiment()
            query = f"tags.`{IDENTITY_TAG}` = '{info.identity}'"
            found = self._client.search_runs([experiment], query, max_results=1)
            self._known: dict[str, set[int]] = {}
            if found:
                self._run = found[0].info.run_id
                self._client.update_run(self._run, status="RUNNING")
                for name in found[0].data.metrics:
                    history = self._client.get_metric_history(self._run, name)
                    self._known[name] = {metric.step for metric in history}
            else:
                tags = {IDENTITY_TAG: info.identity}
                created = self._client.create_run(experiment, tags=tags, run_name=info.title)
                self._run = created.info.run_id
            parameters = [
                Param(name, str(value)[:MAX_PARAMETER_LENGTH])
                for name, value in info.parameters.items()
            ]
            for start in range(0, len(parameters), MAX_PARAMETERS):
                batch = parameters[start : start + MAX_PARAMETERS]
                self._client.log_batch(self._run, params=batch)
        except self.errors as error:
            raise InputError(f"MLflow cannot be used: {' '.join(str(error).split())}") from None

    def send(self, points: Sequence[MetricPoint]) -> None:
        """Store these points, except steps that a metric already has: they are the same points."""
        now = int(time.time() * 1000)
        metrics = [
            Metric(valid, value, now, point.step)
            for point in points
            for name, value in point.values.items()
            if point.step not in self._known.get(valid := _valid_name(name), ())
        ]
        for start in range(0, len(metrics), MAX_METRICS):
            batch = metrics[start : start + MAX_METRICS]
            self._client.log_batch(self._run, metrics=batch)
            for metric in batch:  # not to be sent again if the next batch fails
                self._known.setdefault(metric.key, set()).add(metric.step)

    def close(self, *, finished: bool) -> None:
        """Mark the run as finished, or as interrupted."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


def open_experiment() -> tuple[MlflowClient, str]:
    """Return a client and the id of the experiment of all runs, created if it does not exist."""
    client = MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "deepccg")
    try:
        found = client.get_experiment_by_name(name)
        return client, client.create_experiment(name) if found is None else found.experiment_id
    except (MlflowException, OSError) as error:
        raise InputError(f"MLflow cannot be used: {' '.join(str(error).split())}") from None


def _valid_name(name: str) -> str:
    """Replace characters that MLflow does not allow."""
    return re.sub(r"[^\w./ -]", "_", name)
