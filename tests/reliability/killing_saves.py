"""Processes that are killed while they save a classifier again and again, with several threads."""

import contextlib
import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from killing import Calls, Moment

from deepccg import DeepCCGClassifier
from deepccg.records import is_temporary


@dataclass
class SaveFigures:
    """What a series of kills came to."""

    kills: int = 0
    cut: int = 0  # kills that left a temporary
    most_left: int = 0  # temporaries after one kill
    failures: int = 0  # a file that does not load or is not one of those saved; litter that stays


def trained(seeds: int = 2) -> list[DeepCCGClassifier]:
    """Classifiers that differ, and so do their files."""
    models = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        model = DeepCCGClassifier(memory=200, random_state=seed)
        models.append(model.partial_fit(rng.normal(size=(100, 30)), rng.integers(0, 5, 100)))
    return models


def kill_a_saver(
    path: Path, models: list[DeepCCGClassifier], rng: random.Random, figures: SaveFigures
) -> None:
    """Kill one process with a thread for each model, then load, look around and save again.

    Half of them die inside a write, a sync or a rename, the others at any time.
    """
    whole = {_bytes_of(model, path) for model in models}
    inside = Moment(call=rng.randrange(40), part=rng.random()) if rng.random() < 0.5 else None
    pid, started = _fork_saver(path, models, inside)
    with open(started, "rb") as begun:  # noqa: PTH123  (a descriptor)
        begun.read(1)
        if inside is None:
            time.sleep(rng.uniform(0, 0.05))
            os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    left = [file for file in path.parent.iterdir() if is_temporary(file)]
    figures.kills += 1
    figures.cut += bool(left)
    figures.most_left = max(figures.most_left, len(left))
    good = path.read_bytes() in whole and len(DeepCCGClassifier.load(path).classes_) == 5
    models[0].save(path)
    clean = [file.name for file in path.parent.iterdir()] == [path.name]
    figures.failures += not (good and clean and len(left) <= len(models))


def _bytes_of(model: DeepCCGClassifier, path: Path) -> bytes:
    model.save(path)
    return path.read_bytes()


def _fork_saver(
    path: Path, models: list[DeepCCGClassifier], inside: Moment | None
) -> tuple[int, int]:
    """Fork a process that saves for ever, or until it dies in one of its low-level calls."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            Calls(inside)
            threads = [threading.Thread(target=_save, args=(path, m)) for m in models]
            os.close(reader)
            os.write(writer, b".")
            for thread in threads:
                thread.start()
            threads[0].join()
        finally:
            os._exit(70)  # a save that raised
    os.close(writer)
    return pid, reader


def _save(path: Path, model: DeepCCGClassifier) -> None:
    with contextlib.suppress(BaseException):
        while True:
            model.save(path)
    os._exit(71)
