"""MLflow: its own variables (``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``) apply."""

import os
import re
import time
from collections.abc import Sequence
from typing import ClassVar

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from deepccg.core import InputError
from deepccg.tracking.tracker import Described, Point

IDENTITY_TAG = "deepccg.id"
# What MLflow takes at a time.
MOST_METRICS, MOST_PARAMETERS, LONGEST_PARAMETER = 1000, 100, 500


class MlflowStore:
    """A run in MLflow, found again by a tag."""

    errors: ClassVar[tuple[type[Exception], ...]] = (MlflowException, OSError)

    def __init__(self, described: Described) -> None:
        try:
            self._client, where = experiment()
            wanted = f"tags.`{IDENTITY_TAG}` = '{described.identity}'"
            found = self._client.search_runs([where], wanted, max_results=1)
            self._known: dict[str, set[int]] = {}
            if found:
                self._run = found[0].info.run_id
                self._client.update_run(self._run, status="RUNNING")
                self._known = {name: self._steps(name) for name in found[0].data.metrics}
            else:
                tags = {IDENTITY_TAG: described.identity}
                created = self._client.create_run(where, tags=tags, run_name=described.title)
                self._run = created.info.run_id
            parameters = [
                Param(name, str(value)[:LONGEST_PARAMETER])
                for name, value in described.parameters.items()
            ]
            for start in range(0, len(parameters), MOST_PARAMETERS):
                some = parameters[start : start + MOST_PARAMETERS]
                self._client.log_batch(self._run, params=some)
        except self.errors as error:
            raise InputError(f"MLflow cannot be used: {' '.join(str(error).split())}") from None

    def send(self, points: Sequence[Point]) -> None:
        """Keep these points; steps that a metric has by now are the same points again."""
        now = int(time.time() * 1000)
        metrics = [
            Metric(plain, value, now, point.step)
            for point in points
            for name, value in point.values.items()
            if point.step not in self._known.get(plain := _plain(name), ())
        ]
        for start in range(0, len(metrics), MOST_METRICS):
            some = metrics[start : start + MOST_METRICS]
            self._client.log_batch(self._run, metrics=some)
            for metric in some:  # lest they be sent again, should the next ones fail
                self._known.setdefault(metric.key, set()).add(metric.step)

    def close(self, *, finished: bool) -> None:
        """The run is finished, or was interrupted and may go on."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _steps(self, name: str) -> set[int]:
        return {metric.step for metric in self._client.get_metric_history(self._run, name)}


def experiment() -> tuple[MlflowClient, str]:
    """A client, and the experiment that runs go to; it is made if it is not there."""
    client = MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "deepccg")
    try:
        found = client.get_experiment_by_name(name)
        where = client.create_experiment(name) if found is None else found.experiment_id
    except (MlflowException, OSError) as error:
        raise InputError(f"MLflow cannot be used: {' '.join(str(error).split())}") from None
    return client, where


def _plain(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^\w./ -]", "_", name)
