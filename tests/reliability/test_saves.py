"""Writers that meet at one path, and those that are killed there: no file is torn, none is left."""

import contextlib
import fcntl
import os
import random
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killing_saves import SaveFigures, kill_a_saver, trained
from PIL import Image

from deepccg import DeepCCGClassifier
from deepccg.core import State
from deepccg.learners.state_file import load_state, save_state
from deepccg.records import is_temporary, temporary_directory, write_atomically
from deepccg.streams.cache import write_entry
from deepccg.streams.images import ImageSource


def left_in(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if is_temporary(path)]


@pytest.mark.parametrize("writers", [2, 6])
def test_threads_that_save_to_one_path(tmp_path: Path, writers: int) -> None:
    """No save raises, and whoever reads meanwhile finds one of the files whole."""
    path, stop, failures = tmp_path / "model", threading.Event(), []
    contents = [bytes([number]) * (100_000 + number) for number in range(writers)]
    write_atomically(path, contents[0])

    def save(content: bytes) -> None:
        for _ in range(60):
            try:
                write_atomically(path, content)
            except OSError as error:
                failures.append(repr(error))

    def read() -> None:
        while not stop.is_set():
            if path.read_bytes() not in contents:
                failures.append("torn")

    threads = [threading.Thread(target=save, args=(content,)) for content in contents]
    reader = threading.Thread(target=read)
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    reader.join()
    assert failures == []
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_threads_that_save_classifiers(tmp_path: Path) -> None:
    path, failures = tmp_path / "model.safetensors", []
    models = trained(2)
    models[0].save(path)
    x = np.zeros((3, 30))
    expected = [model.predict_proba(x) for model in models]

    def save(model: DeepCCGClassifier) -> None:
        for _ in range(30):
            try:
                model.save(path)
            except OSError as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=save, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found = DeepCCGClassifier.load(path).predict_proba(x)
        assert any(np.array_equal(found, each) for each in expected)
    assert failures == []


def test_a_file_that_is_replaced_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Header and tensors come from the same file, the one before."""
    path = tmp_path / "model"
    states = [State({"x": torch.full((1000,), float(n))}, {"n": n}) for n in range(2)]
    save_state(path, states[0], {})
    map_file, late = torch.UntypedStorage.from_file, []

    def map_late(*arguments: Any, **options: Any) -> Any:
        late.append(save_state(path, states[1], {}))  # the header was read, the tensors were not
        return map_file(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(torch.UntypedStorage, "from_file", map_late)
        state, _ = load_state(path)
    assert late
    assert state.meta == {"n": 0}
    assert torch.equal(state.tensors["x"], states[0].tensors["x"])
    assert load_state(path)[0].meta == {"n": 1}


def test_processes_of_the_same_number(tmp_path: Path) -> None:
    """As two containers on one volume, in each of which the process is number 1."""
    path = tmp_path / "model"
    contents = [bytes([number]) * 200_000 for number in range(3)]
    write_atomically(path, contents[0])

    def save(content: bytes) -> None:
        os.getpid = lambda: 1
        for _ in range(60):
            write_atomically(path, content)

    children = [fork(lambda content=content: save(content)) for content in contents]
    alive = set(children)
    while alive:
        assert path.read_bytes() in contents
        for child in list(alive):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                alive.remove(child)
                assert status == 0
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.write_text("mine")
    place.mkdir()
    (place / f".model.{os.getpid()}.tmp").symlink_to(victim)  # a name that can be guessed
    write_atomically(place / "model", b"new")
    assert (place / "model").read_bytes() == b"new"
    # And had the random name been guessed:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    (place / f".model.{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError) as caught:
        write_atomically(place / "model", b"newer")
    assert caught.value.filename == str(place / "model")
    assert victim.read_text() == "mine"


def test_names_as_long_as_they_may_be(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127, "\U0001f600" * 63):
        write_atomically(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"


def fork(act: Callable[[], object]) -> int:
    """Do this in a process of its own; it exits with 0 unless something is raised."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
        os._exit(0)
    finally:
        os._exit(70)


def killed(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do this in a process that dies when it syncs for the first time."""

    def die(_descriptor: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        child = fork(act)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@contextlib.contextmanager
def living(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do this in a process that waits in its first sync until the block ends; it must succeed."""
    (reached, reach), (go_on, release) = os.pipe(), os.pipe()
    sync = os.fsync

    def wait(descriptor: int) -> None:
        os.write(reach, b".")
        os.read(go_on, 1)
        monkeypatch.setattr(os, "fsync", sync)
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", wait)
        child = fork(act)
    os.read(reached, 1)
    yield
    os.write(release, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_next_save_removes_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "model", tmp_path / "other"
    for _ in range(3):
        killed(lambda: write_atomically(path, b"never"), monkeypatch)
        assert len(left_in(tmp_path)) == 1
    killed(lambda: write_atomically(other, b"never"), monkeypatch)
    write_atomically(path, b"new")
    assert [file.name.startswith(".other.") for file in left_in(tmp_path)] == [True]
    write_atomically(other, b"new")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "other"]


def test_a_living_writer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    with living(lambda: write_atomically(path, b"slow"), monkeypatch):
        (temporary,) = left_in(tmp_path)
        os.utime(temporary, (0, 0))  # the clock was set: age says nothing
        for number in range(3):
            write_atomically(path, b"fast %d" % number)
            assert left_in(tmp_path) == [temporary]
    assert path.read_bytes() == b"slow"
    assert left_in(tmp_path) == []


def test_a_temporary_that_is_removed_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer may take it for a leftover, in the instant after it is made."""
    flock, lost = fcntl.flock, []

    def removed_first(descriptor: int, how: int) -> None:
        if len(lost) < 3:
            lost.extend(left_in(tmp_path))
            left_in(tmp_path)[0].unlink()
        flock(descriptor, how)

    def locked_first(descriptor: int, how: int) -> None:
        if len(lost) < 6:
            lost.extend(left_in(tmp_path))
            raise BlockingIOError
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    write_atomically(tmp_path / "model", b"new")
    assert (tmp_path / "model").read_bytes() == b"new"
    assert len(set(lost)) == 3
    monkeypatch.setattr(fcntl, "flock", locked_first)
    write_atomically(tmp_path / "model", b"newer")
    assert (tmp_path / "model").read_bytes() == b"newer"


def test_without_locks_nothing_of_others_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_descriptor: int, _how: int) -> None:
        raise OSError(95, "Operation not supported")

    killed(lambda: write_atomically(tmp_path / "model", b"never"), monkeypatch)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    write_atomically(tmp_path / "model", b"new")
    assert (tmp_path / "model").read_bytes() == b"new"
    assert len(left_in(tmp_path)) == 1


@pytest.fixture
def source(tmp_path: Path) -> ImageSource:
    place = tmp_path / "image.png"
    Image.new("RGB", (4, 4)).save(place)

    def read(rows: np.ndarray) -> Iterator[tuple[str, bytes]]:
        for row in rows:
            yield str(row), place.read_bytes()

    return ImageSource(("a", "b"), np.array([0, 1]), np.arange(2), read)


def test_the_next_decode_removes_what_a_killed_one_left(
    tmp_path: Path, source: ImageSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    for name in ("train-1", "test-1"):  # whatever it was for: of changed data the name changes
        killed(lambda name=name: write_entry(cache / name, source, (4, 4)), monkeypatch)
    assert 1 <= len(left_in(cache)) <= 2
    with living(lambda: write_entry(cache / "train-3", source, (4, 4)), monkeypatch):
        write_entry(cache / "train-2", source, (4, 4))
        (temporary,) = left_in(cache)
        assert temporary.name.startswith(".train-3.")
    assert sorted(entry.name for entry in cache.iterdir()) == ["train-2", "train-3"]


def test_a_directory_that_is_not_renamed_is_removed(tmp_path: Path) -> None:
    with (
        temporary_directory(tmp_path / "entry") as made,
        temporary_directory(tmp_path / "entry") as second,
    ):
        assert made != second
        (made / "inside").mkdir()
        (made / "inside" / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_kills_while_saving(tmp_path: Path) -> None:
    models, figures = trained(2), SaveFigures()
    rng = random.Random(0)  # noqa: S311  (to choose moments)
    for number in range(24):
        kill_a_saver(tmp_path / "model", models[: 1 + number % 2], rng, figures)
    assert (figures.kills, figures.failures) == (24, 0)
    assert figures.cut >= 4
