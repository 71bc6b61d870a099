"""Weights & Biases, offline: what its own reader finds in the files is what the records say."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb", reason="the extra deepccg[wandb] is not installed")

import wandb
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

from deepccg.core import InputError
from deepccg.records import RunDirectory

pytestmark = pytest.mark.slow  # W&B starts a separate process for each attempt
Series = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings and no key of whoever runs this."""
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_DIR", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()  # it reads its variables once


def read(path: Path) -> Iterator[Record]:
    store = DataStore()
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        yield record


def read_whole(path: Path, seconds: float = 200) -> list[Record]:
    """All records, once W&B's own process, which may still be writing, has written the end."""
    until = time.monotonic() + seconds
    while True:
        records = list(read(path))
        if any(record.HasField("exit") for record in records) or time.monotonic() > until:
            return records
        time.sleep(0.1)


def history(records: list[Record]) -> Series:
    """Each curve, without what W&B adds itself."""
    found: Series = {}
    for record in records:
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                value = json.loads(item.value_json)
                found.setdefault(name, []).append((record.history.step.num, value))
    return found


@pytest.mark.parametrize("cuts", [(), (65, 100)], ids=["whole", "interrupted twice"])
def test_an_offline_run_holds_the_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tracked_run: Callable[..., RunDirectory],
    series: Callable[[RunDirectory], Series],
    parameters: Callable[[RunDirectory], dict[str, Any]],
    cuts: tuple[int, ...],
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    directory = tracked_run(tmp_path / "run", "wandb", *cuts)
    assert directory.finished
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")  # the last attempt alone
    records = read_whole(path)
    assert history(records) == series(directory)
    (about,) = [record.run for record in records if record.HasField("run")]
    assert about.run_id == json.loads(directory.tracking_path.read_text())["id"]
    assert (about.project, about.display_name) == ("deepccg", f"{tmp_path.name}/run")
    config = {each.key: json.loads(each.value_json) for each in about.config.update}
    config.pop("_wandb")
    assert config == parameters(directory)
    (end,) = [record.exit for record in records if record.HasField("exit")]
    assert end.exit_code == 0


def test_no_key_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracked_run: Callable[..., RunDirectory]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(InputError, match=r"Weights & Biases cannot be used: .*log in") as refused:
        tracked_run(tmp_path / "run", "wandb")
    assert "\n" not in str(refused.value)
