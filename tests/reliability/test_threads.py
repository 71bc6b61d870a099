"""One model in several threads: every call sees a state between two steps, and writers take turns.

``threaded_calls.py`` beside this makes the calls; ``make torture`` makes 10,000 of them.
"""

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threaded_calls import ASKED, FEATURES, Log, batch_of, call_from_threads, digest, in_threads

from deepccg import DeepCCGClassifier
from deepccg.estimator.river import RiverClassifier
from deepccg.estimator.turns import Turns


@pytest.mark.slow
@pytest.mark.parametrize("method", ["deepccg", "er", "icarl"])
def test_calls_from_threads_have_a_serial_order(method: str, tmp_path: Path) -> None:
    figures = call_from_threads(method, 400, tmp_path)
    assert figures.steps > 50
    assert figures.errors == []


def row_of(number: int) -> tuple[dict[str, float], str]:
    """An example for River; every twentieth brings a feature that was never there."""
    x, y = batch_of(number)
    row = {str(column): float(value) for column, value in enumerate(x[0])}
    if number % 20 == 19:
        row[f"z{number}"] = 1.0
    return row, str(y[0])


def test_a_river_model_in_threads_has_a_serial_order() -> None:
    model, twin, log = RiverClassifier(seed=0, memory=12), RiverClassifier(seed=0, memory=12), Log()
    for each in (model, twin):
        each.learn_one(*row_of(10**4))
    numbers = iter(range(200))
    seen: list[tuple[int, dict[Any, float], int]] = []
    errors: list[Exception] = []

    def call(kind: str) -> None:
        try:
            if kind == "learn":
                model.learn_one(*row_of(next(numbers)))
                log.count_return()
                return
            first = log.returned
            asked = model if kind == "ask" else pickle.loads(pickle.dumps(model))  # noqa: S301
            said = asked.predict_proba_one(row_of(7)[0])
            seen.append((first, said, len(log.entered)))
        except Exception as error:  # noqa: BLE001  (whatever a race may raise)
            errors.append(error)

    with log.listening("deepccg"):
        in_threads(5, ["learn", "ask", "copy", "ask"] * 80, call)
    assert errors == []
    states = [twin.predict_proba_one(row_of(7)[0])]
    for number in log.entered:
        twin.learn_one(*row_of(number))
        states.append(twin.predict_proba_one(row_of(7)[0]))
    assert len(states) == 81
    assert digest(model.classifier) == digest(twin.classifier)
    assert model.features == twin.features
    for first, said, last in seen:
        assert said in states[first : last + 1]


def test_models_made_in_several_threads_are_those_made_one_by_one() -> None:
    """PyTorch draws first weights from one generator for all threads."""

    def made(seed: int) -> str:
        return digest(DeepCCGClassifier("er", random_state=seed).partial_fit(*batch_of(seed)))

    found: dict[int, str] = {}
    gate = threading.Barrier(6)

    def work(thread: int) -> None:
        gate.wait()
        for seed in range(thread, 60, 6):
            found[seed] = made(seed)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {seed: made(seed) for seed in range(60)}


def test_copies_have_their_own_turn(tmp_path: Path) -> None:
    model = DeepCCGClassifier(memory=12, random_state=0).partial_fit(*batch_of(0))
    model.save(tmp_path / "model")
    copies = [
        copy.deepcopy(model),
        copy.copy(model),
        pickle.loads(pickle.dumps(model)),  # noqa: S301  (our own bytes)
        clone(model).fit(*batch_of(1)),
        DeepCCGClassifier.load(tmp_path / "model"),
    ]
    held, done = threading.Event(), threading.Event()

    class Held:
        """An input that is not converted before the copies have answered."""

        shape = ASKED.shape

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            held.set()
            done.wait(60)
            return np.array(ASKED, dtype=dtype, copy=copy)

    worker = threading.Thread(target=model.predict, args=(Held(),), daemon=True)
    worker.start()
    assert held.wait(60)
    for twin in copies:
        assert twin.predict(ASKED).shape == (len(ASKED),)
        assert twin.n_features_in_ == FEATURES
    done.set()
    worker.join(60)
    assert not worker.is_alive()


def waiting_at(lock: Turns, order: list[str]) -> threading.Thread:
    """A thread that waits for its turn, which somebody has."""
    begun = threading.Event()

    def work() -> None:
        begun.set()
        with lock:
            order.append("other")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert begun.wait(60)
    worker.join(0.1)  # it waits by now
    assert worker.is_alive()
    return worker


def test_a_turn_may_be_taken_again_within_while_others_wait() -> None:
    lock, order = Turns(), ["first"]
    with lock:
        worker = waiting_at(lock, order)
        with lock:
            order.append("within")
    worker.join(60)
    assert order == ["first", "within", "other"]


def test_who_waits_is_next() -> None:
    """A plain lock goes to whoever gives it back and takes it again at once."""
    lock, order = Turns(), ["first"]
    with lock:
        worker = waiting_at(lock, order)
    with lock:
        order.append("again")
    worker.join(60)
    assert order == ["first", "other", "again"]


def test_an_error_gives_the_turn_back() -> None:
    model = DeepCCGClassifier(memory=12, random_state=0).partial_fit(*batch_of(0))
    for call in (model.predict, lambda x: model.partial_fit(x, ["ant"])):
        with pytest.raises(ValueError, match="features"):
            call([[1.0]])
    answered = threading.Thread(target=model.predict, args=(ASKED,), daemon=True)
    answered.start()
    answered.join(60)
    assert not answered.is_alive()
