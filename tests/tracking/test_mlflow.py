"""MLflow: what a real store gives back is what the records say, each point once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow", reason="the extra deepccg[tracking] is not installed")
pytest.importorskip("sqlalchemy", reason="a local MLflow store is a database")

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from deepccg.core import InputError
from deepccg.experiment import run
from deepccg.records import RunDirectory

Series = dict[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database; making its tables takes a while."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    MlflowClient(tracking_uri=uri).create_experiment("made before")
    return uri


@pytest.fixture
def client(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MlflowClient:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", tmp_path.name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return MlflowClient(tracking_uri=store)


def only_run(client: MlflowClient, experiment: str) -> Run:
    found = client.get_experiment_by_name(experiment)
    (tracked,) = client.search_runs([found.experiment_id])
    return tracked


def stored(client: MlflowClient, tracked: Run) -> Series:
    return {
        name: sorted(
            (metric.step, metric.value)
            for metric in client.get_metric_history(tracked.info.run_id, name)
        )
        for name in tracked.data.metrics
    }


@pytest.mark.parametrize("cuts", [(), (25, 65, 95)])
def test_what_is_stored_is_what_was_recorded(
    client: MlflowClient,
    tmp_path: Path,
    tracked_run: Callable[..., RunDirectory],
    series: Callable[[RunDirectory], Series],
    parameters: Callable[[RunDirectory], dict[str, Any]],
    cuts: tuple[int, ...],
) -> None:
    directory = tracked_run(tmp_path / "name" / "seed-0", "mlflow", *cuts)
    tracked = only_run(client, tmp_path.name)
    assert stored(client, tracked) == series(directory)
    assert tracked.data.params == {k: str(value) for k, value in parameters(directory).items()}
    assert tracked.info.status == "FINISHED"
    assert tracked.info.run_name == "name/seed-0"


def test_a_run_that_was_not_tracked_from_the_start(
    client: MlflowClient,
    tmp_path: Path,
    tracked_run: Callable[..., RunDirectory],
    series: Callable[[RunDirectory], Series],
) -> None:
    directory = tracked_run(tmp_path / "run", None)
    files = {file.name: file.read_bytes() for file in directory.path.iterdir()}
    assert "tracking.json" not in files
    tracked_run(tmp_path / "run", "mlflow")
    assert stored(client, only_run(client, tmp_path.name)) == series(directory)
    files["tracking.json"] = directory.tracking_path.read_bytes()
    assert {file.name: file.read_bytes() for file in directory.path.iterdir()} == files


def test_a_server_that_cannot_be_reached_is_refused_before_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/no/such/place/mlflow.db")
    (tmp_path / "no").write_text("a file")
    steps: list[int] = []
    with pytest.raises(InputError, match="MLflow cannot be used: ") as refused:
        run(
            directory=tmp_path / "run",
            track="mlflow",
            method="sgd",
            progress=lambda step, *_: steps.append(step),
        )
    assert "\n" not in str(refused.value)
    assert steps == []
