"""Files that were damaged anywhere: a loader gives a value, or one line of complaint."""

import io
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deepccg.core import DeepCCGError, State
from deepccg.experiment.session import load_checkpoint
from deepccg.learners.state_file import save_state
from deepccg.records import RecordError, Training, append_record, read_records
from deepccg.streams import load_dataset, read_images
from deepccg.streams.cache import read_entry, write_entry
from deepccg.streams.images import ImageSource

CASES = settings(max_examples=int(os.environ.get("DEEPCCG_FUZZ_CASES", "60")))

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "AVIF")


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Overwrite, insert, remove, cut: a few times, anywhere."""
    edits = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["overwrite", "insert", "remove", "cut", "copy"]),
                st.floats(0, 1),
                st.binary(min_size=1, max_size=8),
            ),
            max_size=5,
        )
    )

    def damaged(content: bytes) -> bytes:
        for kind, share, piece in edits:
            at = int(share * len(content))
            head, tail = content[:at], content[at:]
            content = {
                "overwrite": head + piece + tail[len(piece) :],
                "insert": head + piece + tail,
                "remove": head + tail[len(piece) :],
                "cut": head,
                "copy": head + tail[: 4 * len(piece)] + tail,
            }[kind]
        return content

    return damaged


def loads_or_complains(load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (DeepCCGError, RecordError) as error:
        said = str(error)
        assert said
        assert "\n" not in said
        assert len(said) < 3000
        return None


def picture(seed: int, kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind)
    return file.getvalue()


PICTURES = {kind: picture(0, kind) for kind in FORMATS}


@CASES
@given(st.sampled_from(FORMATS), damages())
def test_an_image_file(tmp_path_factory: pytest.TempPathFactory, kind: str, damage: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.png"
    file.write_bytes(damage(PICTURES[kind]))
    pixels = loads_or_complains(lambda: read_images([file], (3, 5, 4)))
    assert pixels is None or (pixels.shape == (1, 3, 5, 4) and pixels.dtype == np.uint8)


def parquet_bytes() -> bytes:
    features = {"img": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    cell = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    schema = pyarrow.schema([("img", cell), ("label", pyarrow.int64())], metadata=about)
    rows = [{"img": {"bytes": picture(i), "path": None}, "label": i % 2} for i in range(4)]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), file)
    return file.getvalue()


PARQUET = parquet_bytes()


@CASES
@given(damages())
def test_a_parquet_file(tmp_path_factory: pytest.TempPathFactory, damage: Any) -> None:
    place = tmp_path_factory.mktemp("parquet")
    (place / "train.parquet").write_bytes(damage(PARQUET))
    (place / "test.parquet").write_bytes(PARQUET)

    def load() -> Any:
        data = load_dataset("hf:me/mine", data_dir=place, cache_dir=place / "cache")
        return data.train, data.test

    parts = loads_or_complains(load)
    for part in parts or ():
        assert part.x.dtype == np.uint8
        assert part.x.ndim == 4


ENTRY_FILES = ("x.npy", "y.npy", "rows.npy", "meta.json")


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    def read(rows: Any) -> Any:
        return ((f"row {row}", picture(int(row))) for row in rows)

    y = np.array([0, 1, 0])
    place = tmp_path_factory.mktemp("entry") / "whole"
    write_entry(place, ImageSource(("a", "b"), y, np.arange(3), read), (5, 4))
    return {name: (place / name).read_bytes() for name in ENTRY_FILES}


@CASES
@given(st.sampled_from(ENTRY_FILES), damages(), st.booleans())
def test_a_cache_entry(
    tmp_path_factory: pytest.TempPathFactory,
    entry: dict[str, bytes],
    name: str,
    damage: Any,
    size_is_told: bool,
) -> None:
    place = tmp_path_factory.mktemp("cache")
    for each, content in entry.items():
        (place / each).write_bytes(content)
    (place / name).write_bytes(damage(entry[name]))
    if size_is_told and name != "meta.json":  # so that the array itself is looked at
        meta = json.loads(entry["meta.json"])
        meta["arrays"][name.removesuffix(".npy")]["bytes"] = (place / name).stat().st_size
        (place / "meta.json").write_text(json.dumps(meta))
    found = read_entry(place)
    if found is not None:
        assert found.x.dtype == np.uint8
        assert len(found.x) == len(found.y) == len(found.rows)
        assert found.y.max() < len(found.names)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("records") / "records.jsonl"
    for step in range(1, 4):
        append_record(file, Training(50 * step, 0.5, {"scale": 1.0}))
    return file.read_bytes()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
)
lines = st.dictionaries(
    st.sampled_from(
        [
            "type",
            "step",
            "loss",
            "extra",
            "tasks",
            "classes",
            "final",
            "images",
            "task",
            "of_images",
        ]
    ),
    anything | st.sampled_from(["training", "evaluation"]),
).map(lambda line: json.dumps(line).encode() + b"\n")


@CASES
@given(damages(), lines | st.just(b""))
def test_a_file_of_records(
    tmp_path_factory: pytest.TempPathFactory, records: bytes, damage: Any, line: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    file.write_bytes(damage(records) + line)
    for record in loads_or_complains(partial(read_records, file)) or ():
        json.dumps(record.to_json(), allow_nan=False)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("checkpoint") / "checkpoint.safetensors"
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}
    save_state(file, State(tensors, {"format": 1}), {"position": 3})
    return file.read_bytes()


@CASES
@given(damages())
def test_a_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: bytes, damage: Any
) -> None:
    file: Path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    content = damage(checkpoint)
    file.write_bytes(content)
    found = loads_or_complains(lambda: load_checkpoint(file))
    if found is not None:  # then the checksum held
        state, about = found
        assert state.tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert about == {"position": 3}
