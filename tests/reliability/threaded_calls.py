"""One classifier called from several threads, and whether what it said has a serial order.

Every call that learns is noted when the learner is reached, then repeated in that order by one
thread. A call must have seen a state that was there between its begin and its end, bit for bit.
"""

import copy
import functools
import hashlib
import io
import itertools
import json
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from deepccg import METHODS, DeepCCGClassifier, InputError
from deepccg.estimator import classifier as room

FEATURES, ROWS, LABELS = 4, 3, ("ant", "bee", "cow", "dog")
SCALE = 10**5  # the number of a call is in its data, as a small number
ASKED = np.random.default_rng(1).normal(size=(5, FEATURES))
WRITERS = ("partial_fit",) * 6 + ("forget", "refused")
READERS = ("predict",) * 9 + ("predict_proba",) * 6 + ("get_params", "counts", "save", "copy")
Array = npt.NDArray[Any]


@dataclass
class Seen:
    """What a call saw: the states between ``first`` and ``last`` are those it may have seen."""

    what: str
    value: object
    first: int
    last: int


@dataclass
class Figures:
    """How much was called, and what went wrong."""

    calls: int = 0
    steps: int = 0
    errors: list[str] = field(default_factory=list)


class Log:
    """Writers in the order in which they reached the learner, and how many have returned."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.returned = 0
        self._guard = threading.Lock()

    def count_return(self) -> None:
        with self._guard:
            self.returned += 1

    @contextmanager
    def listening(self, method: str) -> Iterator[None]:
        """Note each call by a number: that in the first column of a batch, or the row to forget."""
        learn, unlearn = METHODS[method].learn, room.unlearn

        @functools.wraps(learn)
        def noted_learn(learner: Any, batch: Any) -> Any:
            self.entered.append(round(float(batch.x[0, 0]) * SCALE))
            return learn(learner, batch)

        def noted_unlearn(state: Any, labels: Any, cls: Any, index: Any) -> Any:
            self.entered.append(-1)
            return unlearn(state, labels, cls, index)

        with (
            patch.object(METHODS[method], "learn", noted_learn),
            patch.object(room, "unlearn", noted_unlearn),
        ):
            yield


def batch_of(number: int) -> tuple[Array, Array]:
    """The data of a call that learns."""
    rng = np.random.default_rng(number)
    x, y = rng.normal(size=(ROWS, FEATURES)), rng.choice(LABELS[: 2 + number % 3], ROWS)
    x[0, 0] = number / SCALE
    return x, y


def write(model: DeepCCGClassifier, number: int) -> None:
    """Repeat what was noted."""
    if number < 0:
        model.forget(index=0)
    else:
        model.partial_fit(*batch_of(number))


def digest(model: DeepCCGClassifier) -> str:
    """Of everything that the next step depends on."""
    state = model.learner_.state_dict()
    found = hashlib.blake2b(json.dumps([state.meta, model.classes_.tolist()]).encode())
    for name in sorted(state.tensors):
        found.update(state.tensors[name].numpy().tobytes())
    return found.hexdigest()


def looks(model: DeepCCGClassifier) -> dict[str, object]:
    """What each kind of reader sees of a state."""
    whole = digest(model)
    return {
        "predict": model.predict(ASKED).tolist(),
        "predict_proba": model.predict_proba(ASKED).tobytes(),
        "counts": model.class_counts_["seen"].tolist(),
        "save": whole,
        "copy": whole,
    }


class Caller:
    """Makes calls of all kinds on one model and keeps what they saw."""

    def __init__(self, model: DeepCCGClassifier, log: Log, place: Path) -> None:
        self.model, self.log, self.place = model, log, place
        self.seen: list[Seen] = []
        self.errors: list[str] = []
        self._numbers = itertools.count()

    def call(self, kind: str) -> None:
        first = self.log.returned
        try:
            value = self._do(kind)
        except Exception as error:  # noqa: BLE001  (whatever a race may raise)
            self.errors.append(f"{kind}: {error!r}")
            return
        if kind in READERS and kind != "get_params":
            self.seen.append(Seen(kind, value, first, len(self.log.entered)))

    def _do(self, kind: str) -> object:
        model = self.model
        if kind == "partial_fit":
            model.partial_fit(*batch_of(next(self._numbers)))
            self.log.count_return()
        elif kind == "forget":
            if not hasattr(model, "forget"):
                return None
            model.forget(index=0)
            self.log.count_return()
        elif kind == "refused":
            self._refused()
        elif kind == "predict":
            return model.predict(ASKED).tolist()
        elif kind == "predict_proba":
            return model.predict_proba(ASKED).tobytes()
        elif kind == "counts":
            return model.class_counts_["seen"].tolist()
        elif kind == "get_params":
            assert model.get_params()["memory"] == model.memory
        elif kind == "save":
            path = self.place / f"{threading.get_ident()}-{time.monotonic_ns()}"
            model.save(path)
            return path
        elif kind == "copy":
            file = io.BytesIO()
            pickle.dump(model, file)
            return file.getvalue()
        return None

    def _refused(self) -> None:
        """A call that fails changes nothing, for other threads neither."""
        x, _ = batch_of(0)
        try:
            self.model.partial_fit(x, [1, 2, 3])  # numbers among names
        except InputError:
            return
        raise AssertionError("numbers were taken among names")


def call_from_threads(
    method: str, calls: int, place: Path, threads: int = 6, seed: int = 0
) -> Figures:
    """Make ``calls`` calls from several threads and compare them with a serial order."""
    model = DeepCCGClassifier(method, memory=12, random_state=0).partial_fit(*batch_of(10**4))
    twin, log = copy.deepcopy(model), Log()
    caller = Caller(model, log, place)
    rng = random.Random(seed)  # noqa: S311  (to choose calls)
    kinds = [rng.choice(rng.choice((WRITERS, READERS))) for _ in range(calls)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with log.listening(method):
            in_threads(threads, kinds, caller.call)
    finally:
        sys.setswitchinterval(before)
    errors = [*caller.errors, *differences(model, twin, log, caller.seen)]
    return Figures(calls, len(log.entered), errors)


def in_threads(threads: int, kinds: list[str], call: Callable[[str], None]) -> None:
    """Let the threads take the calls from one list."""
    left, guard = iter(kinds), threading.Lock()

    def work() -> None:
        while True:
            with guard:
                kind = next(left, None)
            if kind is None:
                return
            call(kind)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def differences(
    model: DeepCCGClassifier, twin: DeepCCGClassifier, log: Log, seen: list[Seen]
) -> list[str]:
    """Repeat the steps on ``twin`` and return in what the calls and the end differ."""
    states = [looks(twin)]
    for number in log.entered:
        write(twin, number)
        states.append(looks(twin))
    found = []
    if digest(model) != states[-1]["save"]:
        found.append("the final state is not that of the steps one after the other")
    for one in seen:
        value = _read_back(one)
        if value not in [state[one.what] for state in states[one.first : one.last + 1]]:
            found.append(f"{one.what} saw no state between the steps {one.first} and {one.last}")
    return found


def _read_back(one: Seen) -> object:
    if one.what == "save":
        assert isinstance(one.value, Path)
        model = DeepCCGClassifier.load(one.value)
        one.value.unlink()
        return digest(model)
    if one.what == "copy":
        assert isinstance(one.value, bytes)
        return digest(pickle.loads(one.value))  # noqa: S301  (our own bytes)
    return one.value
