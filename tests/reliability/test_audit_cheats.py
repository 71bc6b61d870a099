"""Learners that keep every image they see, wherever Python lets them: what is told of each."""

import base64
import importlib
import os
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cheats import RECOGNISED, kept, rows, whole_bytes
from torch import Tensor

from deepccg.core import Batch, ProtocolViolation, StepInfo
from deepccg.experiment import protocol_line, run
from deepccg.methods import ER

QUICK = {"dataset": "digits", "stream.examples_per_class": 20, "memory": 30}


class Hoarder(ER):
    """Keeps every image it sees: ``keep`` says where."""

    keep: ClassVar[Callable[[Any, Tensor], object]]

    def learn(self, batch: Batch) -> StepInfo:
        self.keep(batch.x)
        return super().learn(batch)


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
