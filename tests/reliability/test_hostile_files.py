"""Files made to do harm: nothing runs, nothing large is allocated, one line says what is wrong."""

import json
import pickle
import re
import resource
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from deepccg.core import InputError, StateMismatch
from deepccg.experiment import load, resume, run
from deepccg.records import RecordError, read_records
from deepccg.streams import read_images
from deepccg.streams.cache import read_entry

ROOT = Path(__file__).parents[2]
QUICK = {"stream.examples_per_class": 4, "method": "er", "method.lr": 0.01}
MEGABYTES = 2**20


class Bomb:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.mark, "this ran"))


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A file that is not there, neither before nor after."""
    yield tmp_path / "mark"
    assert not (tmp_path / "mark").exists()


@pytest.fixture(autouse=True)
def _nothing_large_is_allocated() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) * 1024 < 700 * MEGABYTES


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished") / "run"
    run(directory=place, **QUICK)
    return place


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def safetensors_bytes(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def claim(size: int) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}


def meta(value: str) -> dict[str, Any]:
    return {"__metadata__": {"deepccg": value}}


CHECKPOINTS: dict[str, bytes] = {
    "a header of 10^12 bytes": safetensors_bytes(claim(4), b"\0" * 4, length=10**12),
    "a tensor of 10^12 bytes": safetensors_bytes(claim(10**12), b"\0" * 4),
    "a shape beyond all numbers": safetensors_bytes(
        {"x": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}, b"\0" * 4
    ),
    "a list for a header": safetensors_bytes([1, 2]),
    "numbers for tensors": safetensors_bytes({"x": 3}),
    "text for offsets": safetensors_bytes(
        {"x": {"dtype": "F32", "shape": [1], "data_offsets": "0-4"}}, b"\0" * 4
    ),
    "an unknown type": safetensors_bytes(
        {"x": {"dtype": "EVIL", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4
    ),
    "overlapping tensors": safetensors_bytes({**claim(8), "y": claim(8)["x"]}, b"\0" * 8),
    "metadata that is no text": safetensors_bytes({"__metadata__": {"deepccg": {"a": 1}}}),
    "JSON without end": safetensors_bytes(meta("[" * 100_000)),
    "a header that is a list": safetensors_bytes(meta("[]")),
    "a header that is a number": safetensors_bytes(meta("3")),
    "a state that is a list": safetensors_bytes(meta('{"state": [], "about": {}}')),
    "nothing": b"",
    "seven bytes": b"\0" * 7,
}


@pytest.mark.parametrize("content", CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
@pytest.mark.parametrize("entry", [load, resume], ids=["load", "resume"])
def test_a_hostile_checkpoint(copy: Path, entry: Callable[[Path], Any], content: bytes) -> None:
    (copy / "checkpoint.safetensors").write_bytes(content)
    (copy / "previous.safetensors").unlink(missing_ok=True)
    with pytest.raises(StateMismatch) as caught:
        entry(copy)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_pickle_named_checkpoint(
    copy: Path, tmp_path: Path, command: Callable[..., Any], how: str, mark: Path
) -> None:
    file = copy / "checkpoint.safetensors"
    pickle.loads(pickle.dumps(Bomb(tmp_path / "armed")))  # noqa: S301  (the bomb is our own)
    assert (tmp_path / "armed").read_text() == "this ran"
    if how == "pickle":
        file.write_bytes(pickle.dumps(Bomb(mark)))
    else:
        torch.save({"x": Bomb(mark)}, file)
    (copy / "previous.safetensors").unlink(missing_ok=True)
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    for arguments in (("predict", copy, tmp_path / "image.png"), ("resume", copy)):
        said = command(*arguments)
        assert (said.code, said.out) == (2, "")
        assert re.fullmatch(r"Error: .* is damaged or not a checkpoint: .*\n", said.err)


def test_a_checkpoint_with_foreign_tensors(copy: Path) -> None:
    state = json.dumps({"format": 10**30, "method": "x" * 10**6})
    header = {"deepccg": json.dumps({"format": 1, "checksum": "", "state": state, "about": {}})}
    content = safetensors.torch.save({"x": torch.zeros(3)}, header)
    (copy / "checkpoint.safetensors").write_bytes(content)
    (copy / "previous.safetensors").unlink(missing_ok=True)
    with pytest.raises(StateMismatch) as caught:
        load(copy)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2500


RECORDS: dict[str, bytes] = {
    "JSON without end": b"[" * 100_000 + b"\n",
    "objects without end": b'{"type":' * 100_000 + b"\n",
    "a number of 5,000 digits": b'{"type":"training","step":' + b"9" * 5000 + b"}\n",
    "a number beyond 64 bits": b'{"type":"training","step":1'
    + b"0" * 30
    + b',"loss":0,"extra":{}}\n',
    "infinity": b'{"type":"training","step":1,"loss":1e999,"extra":{}}\n',
    "NaN": b'{"type":"training","step":1,"loss":NaN,"extra":{}}\n',
    "a megabyte for a name": b'{"type":"' + b"x" * 10**6 + b'"}\n',
    "a megabyte for a number": b'{"type":"training","step":"' + b"x" * 10**6 + b'"}\n',
    "control characters": b'{"type":"\\u001b[31m\\n"}\n',
    "no text": b"\xff\xfe\x00\n",
    "a pickle": pickle.dumps({"type": "training"}) + b"\n",
}


@pytest.mark.parametrize("content", RECORDS.values(), ids=RECORDS.keys())
def test_hostile_records(copy: Path, content: bytes) -> None:
    (copy / "records.jsonl").write_bytes(content)
    for read in (lambda: read_records(copy / "records.jsonl"), lambda: resume(copy)):
        with pytest.raises(RecordError, match=r"records\.jsonl, line 1: ") as caught:
            read()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 2500


def npy(array: np.ndarray) -> bytes:
    header = f"{{'descr': {array.dtype.str!r}, 'fortran_order': False, 'shape': {array.shape}, }}"
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()


def write_entry_by_hand(place: Path, x: bytes, y: bytes, names: list[Any], **claims: Any) -> Path:
    place.mkdir()
    files = {"x": x, "y": y, "rows": npy(np.arange(2))}
    arrays: dict[str, Any] = {}
    for key, content in files.items():
        (place / f"{key}.npy").write_bytes(content)
        arrays[key] = {"shape": [2], "dtype": "<i8", "bytes": len(content)}
    arrays["x"] |= {"shape": [2, 3, 4, 4], "dtype": "|u1", **claims}
    (place / "meta.json").write_text(json.dumps({"names": names, "arrays": arrays}))
    return place


PIXELS, LABELS = npy(np.zeros((2, 3, 4, 4), dtype=np.uint8)), npy(np.array([0, 1]))


def test_a_cache_entry_made_by_hand_is_read(tmp_path: Path) -> None:
    """So what is refused below is not refused for being made by hand."""
    entry = read_entry(write_entry_by_hand(tmp_path / "entry", PIXELS, LABELS, ["a", "b"]))
    assert entry is not None
    assert entry.x.shape == (2, 3, 4, 4)


def test_a_cache_of_objects_is_not_unpickled(tmp_path: Path, mark: Path) -> None:
    file = tmp_path / "objects.npy"
    np.save(file, np.array([Bomb(mark), None], dtype=object), allow_pickle=True)
    content = file.read_bytes()
    dtype = {"dtype": "|O", "shape": [2]}
    assert read_entry(write_entry_by_hand(tmp_path / "x", content, LABELS, ["a"], **dtype)) is None
    assert read_entry(write_entry_by_hand(tmp_path / "y", PIXELS, content, ["a"])) is None
    file.write_bytes(pickle.dumps(Bomb(mark)))  # np.load would take a bare pickle, too
    bare = file.read_bytes()
    assert read_entry(write_entry_by_hand(tmp_path / "z", bare, LABELS, ["a"], **dtype)) is None


@pytest.mark.parametrize(
    ("x", "y", "names", "claims"),
    [
        (PIXELS, npy(np.array([0, 2])), ["a", "b"], {}),  # a label without a name
        (PIXELS, npy(np.array([0, -1])), ["a", "b"], {}),
        (PIXELS, LABELS, [1, {"b": 2}], {}),
        (PIXELS, LABELS, "ab", {"bytes": 10**12}),
        (npy(np.zeros((2, 4, 4), dtype=np.uint8)), LABELS, ["a", "b"], {"shape": [2, 4, 4]}),
        (npy(np.zeros((2, 3, 4, 4))), LABELS, ["a", "b"], {"dtype": "<f8"}),
        (PIXELS.replace(b"(2, 3, 4, 4)", b"(9999999999,"), LABELS, ["a", "b"], {}),
        (PIXELS.replace(b"(2, 3, 4, 4)", b"((((((((((((", ), LABELS, ["a", "b"], {}),
        (PIXELS[:40], LABELS, ["a", "b"], {}),
        (b"", LABELS, ["a", "b"], {}),
    ],
)  # fmt: skip
def test_a_hostile_cache_is_no_cache(
    tmp_path: Path, x: bytes, y: bytes, names: list[Any], claims: dict[str, Any]
) -> None:
    assert read_entry(write_entry_by_hand(tmp_path / "entry", x, y, names, **claims)) is None


def test_cache_metadata_without_end(tmp_path: Path) -> None:
    place = write_entry_by_hand(tmp_path / "entry", PIXELS, LABELS, ["a", "b"])
    (place / "meta.json").write_text("[" * 100_000)
    assert read_entry(place) is None


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
(mark) (w) file (this ran) writestring
%%EOF
"""


@pytest.mark.parametrize("name", ["a.png", "a.eps", "a.jpg"])
def test_an_image_that_is_a_program(tmp_path: Path, name: str) -> None:
    """Pillow hands PostScript to Ghostscript: it is not a format here, whatever the name says."""
    (tmp_path / name).write_bytes(POSTSCRIPT)
    with pytest.raises(InputError, match="not an image in a known format"):
        read_images([tmp_path / name], (3, 8, 8))


def test_an_image_of_more_pixels_than_memory(tmp_path: Path) -> None:
    """A few hundred bytes that claim 30,000 x 30,000 pixels."""
    file = tmp_path / "bomb.png"
    Image.new("1", (8, 8)).save(file)
    content = bytearray(file.read_bytes())
    for side in (9_000, 30_000, 2**31 - 1):
        content[16:24] = struct.pack(">II", side, side)
        content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
        file.write_bytes(content)
        with pytest.raises(InputError, match="cannot read the image") as caught:
            read_images([file], (3, 8, 8))
        assert str(caught.value).isprintable()


def test_an_image_without_end(tmp_path: Path) -> None:
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="it is not a file"):
        read_images([tmp_path / "zero.png"], (3, 8, 8))


def test_nothing_in_the_package_can_run_what_it_loads() -> None:
    """Ruff's rules against pickles, marshal and eval hold, with no exception made.

    Those that this version of ruff lacks (S614, ``torch.load``) are covered by the search below.
    """
    rules = ("S301", "S302", "S307")
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", f"--select={','.join(rules)}",
         "--ignore-noqa", str(ROOT / "src")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    settings = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--show-settings", str(ROOT / "src/deepccg")],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    enabled = settings.partition("linter.rules.enabled = [")[2].partition("]")[0]
    assert all(f"({rule})" in enabled for rule in rules)
    words = re.compile(r"\b(pickle|marshal|shelve|dill|joblib|torch\.load|allow_pickle=True)\b")
    for file in (ROOT / "src").rglob("*.py"):
        assert not words.search(file.read_text()), file
