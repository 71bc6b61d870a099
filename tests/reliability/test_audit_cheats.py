"""Learners that keep every image they see, wherever Python lets them, and what is told of each."""

import array
import base64
import functools
import importlib
import io
import mmap
import os
import pickle
import queue
import socket
import sqlite3
import subprocess
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from sklearn.neighbors import BallTree
from torch import Tensor

from deepccg.core import Batch, MemoryUsage, ProtocolViolation, StepInfo
from deepccg.experiment import protocol_line, run
from deepccg.methods import ER, SGD

QUICK = {"dataset": "digits", "stream.examples_per_class": 20, "memory": 30}


class Hoarder(ER):
    """Keeps every image it sees: ``keep`` says where."""

    keep: ClassVar[Callable[[Any, Tensor], object]]

    def learn(self, batch: Batch) -> StepInfo:
        self.keep(batch.x)
        return super().learn(batch)


def rows(x: Tensor) -> np.ndarray:
    return x.flatten(1).numpy().copy()


def kept(learner: Any) -> list:
    """A list of the learner's own."""
    return learner.__dict__.setdefault("hoard", [])


def whole_bytes(x: Tensor) -> bytes:
    return x.numpy().tobytes()


# In attributes of the learner


def as_dictionary_keys(learner: Any, x: Tensor) -> None:
    kept(learner).append({row.tobytes(): label for label, row in enumerate(rows(x))})


def as_text_keys(learner: Any, x: Tensor) -> None:
    kept(learner).append({row.tobytes().decode("latin-1"): None for row in rows(x)})


def as_tuple_keys(learner: Any, x: Tensor) -> None:
    kept(learner).append({tuple(row.tolist()): None for row in rows(x)})


def in_an_array_of_the_standard_library(learner: Any, x: Tensor) -> None:
    kept(learner).append(array.array("B", whole_bytes(x)))


def in_doubles_of_the_standard_library(learner: Any, x: Tensor) -> None:
    kept(learner).append(array.array("d", (x.flatten() / 255).tolist()))


def in_a_partial(learner: Any, x: Tensor) -> None:
    kept(learner).append(functools.partial(print, bytes(whole_bytes(x))))


def in_a_frame(learner: Any, x: Tensor) -> None:
    kept(learner).append(pd.DataFrame(rows(x)))


def in_a_frame_with_names(learner: Any, x: Tensor) -> None:
    frame = pd.DataFrame(rows(x).astype(float), columns=[f"pixel {i}" for i in range(64)])
    kept(learner).append(frame.assign(name="digit"))


def in_a_buffer(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", io.BytesIO()).write(whole_bytes(x))


def in_a_saved_buffer(learner: Any, x: Tensor) -> None:
    buffer = io.BytesIO()
    torch.save({"x": x.clone()}, buffer)
    kept(learner).append(buffer)


def in_a_pickle(learner: Any, x: Tensor) -> None:
    kept(learner).append(pickle.dumps([("image", row) for row in rows(x)]))


def in_a_tree(learner: Any, x: Tensor) -> None:
    kept(learner).append(KDTree(rows(x).astype(float)))


def in_another_tree(learner: Any, x: Tensor) -> None:
    kept(learner).append(BallTree(rows(x).astype(float)))


def as_pictures(learner: Any, x: Tensor) -> None:
    kept(learner).extend(Image.fromarray(image[0].numpy()) for image in x)


def in_a_queue(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", queue.Queue()).put(x.clone())


def in_a_simple_queue(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", queue.SimpleQueue()).put(whole_bytes(x))


def collecting() -> Iterator[None]:
    images = []
    while True:
        images.append((yield))


def in_a_generator(learner: Any, x: Tensor) -> None:
    if "hoard" not in vars(learner):
        learner.hoard = collecting()
        next(learner.hoard)
    learner.hoard.send(rows(x))


def as_text(learner: Any, x: Tensor) -> None:
    kept(learner).append(whole_bytes(x).decode("latin-1"))


def as_base64(learner: Any, x: Tensor) -> None:
    kept(learner).append(base64.b64encode(whole_bytes(x)).decode())


def as_hexadecimal(learner: Any, x: Tensor) -> None:
    kept(learner).extend(row.tobytes().hex() for row in rows(x))


def as_numbers(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.tolist())


def as_numbers_in_a_row(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", deque()).extend(x.flatten().tolist())


def as_numbered_pixels(learner: Any, x: Tensor) -> None:
    kept(learner).extend(dict(enumerate(row.tolist())) for row in rows(x))


def in_an_array_of_objects(learner: Any, x: Tensor) -> None:
    holder = np.empty(1, dtype=object)
    holder[0] = x.clone()
    kept(learner).append(holder)


def in_an_array_of_records(learner: Any, x: Tensor) -> None:
    records = np.zeros(len(x), dtype=[("label", "i8"), ("pixels", "u1", 64)])
    records["pixels"] = rows(x)
    kept(learner).append(records)


def beside_their_labels(learner: Any, x: Tensor) -> None:
    kept(learner).append(np.hstack([np.arange(len(x))[:, None], rows(x)]))


def in_columns(learner: Any, x: Tensor) -> None:
    kept(learner).append(np.ascontiguousarray(rows(x).T))


def in_a_sparse_tensor(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.flatten(1).to_sparse())


def in_a_sparse_matrix(learner: Any, x: Tensor) -> None:
    kept(learner).append(csr_array(rows(x)))


def behind_a_view(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.clone()[:0])


def behind_a_view_of_an_array(learner: Any, x: Tensor) -> None:
    kept(learner).append(rows(x)[:1, :3])


def in_a_storage(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.clone().untyped_storage())


def in_a_view_of_bytes(learner: Any, x: Tensor) -> None:
    kept(learner).append(memoryview(whole_bytes(x)))


def in_mapped_memory(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", mmap.mmap(-1, 1 << 14)).write(whole_bytes(x))


def on_the_network(learner: Any, x: Tensor) -> None:
    learner.network.__dict__.setdefault("hoard", []).append(x.clone())


def on_a_parameter(learner: Any, x: Tensor) -> None:
    parameter = next(learner.network.parameters())
    parameter.hoard = (getattr(parameter, "hoard", None), x.clone())


def in_the_thread(learner: Any, x: Tensor) -> None:
    local = learner.__dict__.setdefault("hoard", threading.local())
    local.images = [*getattr(local, "images", []), x.clone()]


def in_a_data_base(learner: Any, x: Tensor) -> None:
    base = learner.__dict__.setdefault("hoard", sqlite3.connect(":memory:"))
    base.execute("create table if not exists hoard (image blob)")
    base.executemany("insert into hoard values (?)", [(row.tobytes(),) for row in rows(x)])


def in_an_open_file(learner: Any, x: Tensor) -> None:
    if "hoard" not in vars(learner):
        learner.hoard = tempfile.TemporaryFile()  # noqa: SIM115 - it is to stay open
    learner.hoard.write(whole_bytes(x))


# In code


def on_a_function(_: Any, x: Tensor) -> None:
    on_a_function.__dict__.setdefault("hoard", []).append(x.clone())


def in_a_default(_: Any, x: Tensor, hoard: list = []) -> None:  # noqa: B006 - that is the cheat
    hoard.append(x.clone())


def make_closure() -> Callable[[Any, Tensor], None]:
    hoard = []

    def in_a_closure(_: Any, x: Tensor) -> None:
        hoard.append(x.clone())

    return in_a_closure


@functools.cache
def remembered(image: bytes) -> int:
    return len(image)


def in_a_cache(_: Any, x: Tensor) -> None:
    for row in rows(x):
        remembered(row.tobytes())


HOARD: list = []


def in_a_global(_: Any, x: Tensor) -> None:
    HOARD.append(x.clone())


def put_away(x: Tensor) -> None:
    ELSEWHERE["images"] = (ELSEWHERE.get("images"), x.clone())


ELSEWHERE: dict = {}


def in_a_global_of_a_helper(_: Any, x: Tensor) -> None:
    put_away(x)


class Cupboard:
    shelf: ClassVar[list] = []

    @classmethod
    def put(cls, x: Tensor) -> None:
        cls.shelf.append(x)


def in_another_class(_: Any, x: Tensor) -> None:
    Cupboard.put(x.clone())


helper = ModuleType("helper_of_cheats")
helper.inner = SimpleNamespace(images=[])


def in_another_module(_: Any, x: Tensor) -> None:
    helper.inner.images.append(x.clone())


def in_a_library(_: Any, x: Tensor) -> None:
    torch.hoard = (getattr(torch, "hoard", None), x.clone())  # type: ignore[attr-defined]
    assert torch.hoard


RECOGNISED = [
    as_dictionary_keys, as_text_keys, as_tuple_keys, in_an_array_of_the_standard_library,
    in_doubles_of_the_standard_library, in_a_partial, in_a_frame, in_a_frame_with_names,
    in_a_buffer, in_a_saved_buffer, in_a_pickle, in_a_tree, in_another_tree, as_pictures,
    in_a_queue, in_a_simple_queue, in_a_generator, as_text, as_base64, as_hexadecimal, as_numbers,
    as_numbers_in_a_row, as_numbered_pixels, in_an_array_of_objects, in_an_array_of_records,
    beside_their_labels, in_columns, in_a_sparse_tensor, in_a_sparse_matrix, behind_a_view,
    behind_a_view_of_an_array, in_a_storage,
    in_a_view_of_bytes, in_mapped_memory, on_the_network, on_a_parameter, in_the_thread,
    in_a_data_base, in_an_open_file, on_a_function, in_a_default, make_closure(), in_a_cache,
    in_a_global, in_a_global_of_a_helper, in_another_class, in_another_module, in_a_library,
]  # fmt: skip


def said_of(directory: Path, keep: Callable, **settings: Any) -> str:
    """What the auditor says of a learner that keeps images; nothing if it passes."""
    cheat = type("Cheat", (Hoarder,), {"keep": keep})
    try:
        run(directory=directory, learner=cheat, **{**QUICK, **settings})
    except ProtocolViolation as violation:
        return str(violation)
    return ""


@pytest.mark.parametrize("keep", RECOGNISED, ids=lambda keep: keep.__name__)
def test_images_are_recognised(tmp_path: Path, keep: Callable) -> None:
    # Already at the end of the first task: its 40 images, of which memory holds 30.
    expected = "protocol violation (memory): 40 examples are held, 30 are allowed (40 in "
    assert said_of(tmp_path / "run", keep).startswith(expected)


# What is not recognised, but counted


def encrypted(learner: Any, x: Tensor) -> None:
    kept(learner).append(x ^ 0x5A)


def compressed(learner: Any, x: Tensor) -> None:
    kept(learner).extend(zlib.compress(row.tobytes(), level=0) for row in rows(x ^ 0x5A))


def as_encrypted_text(learner: Any, x: Tensor) -> None:
    learner.hoard = getattr(learner, "hoard", "") + base64.b85encode(whole_bytes(x)).decode()


def as_tokens(learner: Any, x: Tensor) -> None:
    kept(learner).append(((x.long() * 7919) % 104729).tolist())


@pytest.mark.parametrize(
    "keep", [encrypted, compressed, as_encrypted_text, as_tokens], ids=lambda keep: keep.__name__
)
def test_what_is_not_recognised_is_counted(tmp_path: Path, keep: Callable) -> None:
    said = said_of(tmp_path / "run", keep, **{"stream.examples_per_class": 100})
    assert said.startswith("protocol violation (bytes): the learner holds ")
    assert "Largest: learner.hoard " in said


# What is not checked: docs/reliability.md lists it


def in_a_closed_file(_: Any, x: Tensor) -> None:
    with (Path(os.environ["HOARD"]) / "hoard").open("ab") as file:
        file.write(whole_bytes(x))


def behind_a_descriptor(learner: Any, x: Tensor) -> None:
    descriptor = os.open(
        Path(os.environ["HOARD"]) / "hoard", os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    os.write(descriptor, whole_bytes(x))
    learner.__dict__.setdefault("hoard", []).append(descriptor)


HIDDEN: list = []


def in_a_global_of_a_computed_name(_: Any, x: Tensor) -> None:
    globals()["HID" + "DEN"].append(x.clone())


IMPORTED: list = []


def in_a_global_imported_late(_: Any, x: Tensor) -> None:
    module = importlib.import_module(__name__)
    module.IMPORTED.append(x.clone())


def in_a_large_integer(learner: Any, x: Tensor) -> None:
    kept(learner).extend(int.from_bytes(b"\x01" + row.tobytes(), "big") for row in rows(x))


def in_a_socket(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", socket.socketpair())[0].send(whole_bytes(x))


def until_it_is_asked(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.clone())
    if len(learner.hoard) == 4:  # the last batch of a task
        learner.hoard.clear()


def waiting(images: list, ready: threading.Event, end: threading.Event) -> None:
    own, images = list(images), []
    ready.set()
    end.wait(timeout=60)
    del own


def in_a_frame_of_a_thread(learner: Any, x: Tensor) -> None:
    images, ready = [x.clone()], threading.Event()
    end = learner.__dict__.setdefault("end", threading.Event())
    threading.Thread(target=waiting, args=(images, ready, end), daemon=True).start()
    ready.wait()
    images.clear()


def little_and_encrypted(learner: Any, x: Tensor) -> None:
    kept(learner).append(x ^ 0x5A)


@pytest.mark.parametrize(
    "keep",
    [
        in_a_closed_file, behind_a_descriptor, in_a_global_of_a_computed_name,
        in_a_global_imported_late, in_a_large_integer, in_a_socket, until_it_is_asked,
        in_a_frame_of_a_thread, little_and_encrypted,
    ],
    ids=lambda keep: keep.__name__,
)  # fmt: skip
def test_what_is_not_checked(
    tmp_path: Path, keep: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOARD", str(tmp_path))
    assert said_of(tmp_path / "run", keep) == ""


class Sender(ER):
    """Gives every image to another process."""

    def learn(self, batch: Batch) -> StepInfo:
        if "other" not in vars(self):
            self.other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.other.stdin.write(whole_bytes(batch.x))
        return super().learn(batch)


def test_other_processes_are_named(tmp_path: Path) -> None:
    result = run(directory=tmp_path / "run", learner=Sender, **QUICK)
    result.learner.other.communicate(timeout=60)
    assert result.audit is not None
    assert result.audit["memory"]["not_searched"] == ["learner.other (Popen)"]
    assert protocol_line(result.audit).endswith("; not searched: learner.other (Popen)")


# What is no cheat

SCRIPT = '''
"""A user's script: data, a learner, what a run is watched by, all in one module."""
import logging, sys, weakref
import torch
from deepccg.experiment import run
from deepccg.methods import ER
from deepccg.streams import from_arrays, load_dataset

digits = load_dataset("digits")
x, y = digits.train.x[:, 0], digits.train.y
data = from_arrays(x, y, digits.test.x[:, 0], digits.test.y)
logger = logging.getLogger("script")
logger.addHandler(logging.StreamHandler(sys.stderr))
history = []

class Logging(ER):
    def learn(self, batch):
        self.data = batch.x.shape, batch.y.tolist()  # attributes named like globals
        self.seen = weakref.ref(batch.x)
        logger.warning("a step: %s", "x" * 1_000)
        print("a step", file=self.log)
        return super().learn(batch)

def watch(step, steps, info):
    history.append((x[:step], digits.test.x[:step]))

def main(directory):
    with open(directory / "log.txt", "w") as Logging.log:
        settings = {"stream.examples_per_class": 20, "memory": 30, "progress": watch}
        return run(directory=directory / "run", learner=Logging, data=data, **settings)
'''


def test_a_script_with_its_data_beside_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script_of_a_user.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    result = importlib.import_module("script_of_a_user").main(tmp_path)
    assert result.audit is not None
    assert result.audit["passed"]
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").count("a step") == 20


class Projecting(ER):
    """Has a projection head, and says so only if it is told to."""

    declares: ClassVar[bool] = False

    def build_state(self, seed: int) -> None:
        super().build_state(seed)
        self.projection = torch.nn.Linear(self.dim, 160)

    def memory_usage(self) -> MemoryUsage:
        held = super().memory_usage()
        kept = {"projection": 4 * 160 * (self.dim + 1)} if self.declares else {}
        return MemoryUsage(held.examples, {**held.bytes, **kept})


class Covariance(SGD):
    """Stores no example, but class means and a covariance, which are large."""

    declares: ClassVar[bool] = False

    def build_state(self, seed: int) -> None:
        super().build_state(seed)
        self.means, self.covariance = torch.zeros(10, self.dim), torch.eye(self.dim).double()

    def memory_usage(self) -> MemoryUsage:
        kept = {"means": self.means.nbytes, "covariance": self.covariance.nbytes}
        return MemoryUsage(0, kept if self.declares else {})


@pytest.mark.parametrize(
    ("kind", "largest", "declare"),
    [
        (Projecting, "learner.projection.weight 51,200", 'bytes={"projection": 51840}'),
        (Covariance, "learner.covariance 51,200", 'bytes={"covariance": 51200}'),
    ],
)
def test_who_holds_more_is_told_what_to_declare(
    tmp_path: Path, kind: type[ER], largest: str, declare: str
) -> None:
    with pytest.raises(ProtocolViolation) as raised:
        run(directory=tmp_path / "silent", learner=kind, **QUICK)
    said = str(raised.value)
    assert "\n" not in said
    assert f"Largest: {largest}" in said
    assert said.endswith(f"Name what is meant to be kept in memory_usage(), as in {declare}")
    honest = type("Honest", (kind,), {"declares": True})
    result = run(directory=tmp_path / "honest", learner=honest, **QUICK)
    assert result.audit is not None
    assert result.audit["passed"]
    assert result.audit["memory"]["not_searched"] == []
