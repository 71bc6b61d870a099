"""What waits in a River classifier: only what can be learned, until it is learned or forgotten."""

import pickle
from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deepccg import InputError
from deepccg.estimator.river import RiverClassifier

SMALL = {"memory": 20, "encoder_params": {"layers": (8,)}, "seed": 0}
Call = Callable[[RiverClassifier, dict[str, float], Any], None]


def one(model: RiverClassifier, x: dict[str, float], y: Any) -> None:
    model.learn_one(x, y)


def many(model: RiverClassifier, x: dict[str, float], y: Any) -> None:
    model.learn_many(pd.DataFrame([x]), pd.Series([y], dtype=object))


def with_labels(*labels: Any, batch_size: int = 3) -> RiverClassifier:
    model = RiverClassifier(batch_size=batch_size, **SMALL)
    for row, label in enumerate(labels):
        model.learn_one({"f": float(row)}, label)
    return model


@pytest.mark.parametrize("call", [one, many])
@pytest.mark.parametrize(
    ("known", "bad"),
    [
        (["a"], ("p", "q")),
        (["a"], ["b"]),
        (["a"], {"b"}),
        (["a"], b"b"),
        (["a"], np.array(["b"])),
        (["a"], date(2020, 1, 1)),
        ([], date(2020, 1, 1)),
        ([], np.datetime64("2020-01-01")),
        ([0, 1], 1.5),
        ([0, 1], 1j),
        ([0, 1], 2**63),
        ([0, 1], 2**70),
        ([0, 1], (2, 3)),
        ([0, 1, 2, 0], float("inf")),
    ],
)
def test_invalid_labels_never_wait(call: Call, known: list[Any], bad: Any) -> None:
    model = with_labels(*known)
    before = pickle.dumps(model)
    with pytest.raises(InputError, match=r"Unknown label type: |cannot be mixed"):
        call(model, {"f": 1.0, "new": 2.0}, bad)
    assert pickle.dumps(model) == before
    for row in range(3):
        model.learn_one({"f": float(row)}, known[0] if known else "a")
    assert model.classifier.learner_.steps > 0


def test_whole_floating_numbers_are_labels() -> None:
    model = with_labels(0, 1, 1.0, 2.0, 2**53 + 1)
    assert model.classifier.classes_.tolist() == [0, 1]
    assert [label for _, label in model._waiting] == [2.0, 2**53 + 1]


def test_unsigned_labels_stay_whole() -> None:
    model = with_labels(np.uint64(5), 1, np.uint64(2**53 + 1), batch_size=1)
    assert list(model.predict_proba_one({"f": 1.0})) == [1, 5, 2**53 + 1]
    assert {type(label) for label in model.predict_proba_one({})} == {int}


def test_members_of_an_enumeration_are_their_text() -> None:
    colour = Enum("colour", {"RED": "red", "ROSE": "rose"}, type=str)
    for batch_size in (1, 2, 3):
        model = with_labels(*colour, batch_size=batch_size)
        assert list(model.predict_proba_one({"f": 1.0})) == ["red", "rose"]


class StopHereError(Exception):
    """What no check foresees."""


def refuse(*_: Any, **__: Any) -> None:
    raise StopHereError


@pytest.mark.parametrize("call", [one, many])
@pytest.mark.parametrize("learned", [2, 5])
def test_a_step_that_fails_loses_nothing(
    call: Call, learned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor keeps anything of the new example: its feature, its input, its label."""
    model = with_labels(*"abcab"[:learned])
    before = pickle.dumps(model)
    with monkeypatch.context() as broken:
        broken.setattr("deepccg.methods.DeepCCG.learn", refuse)
        with pytest.raises(StopHereError):
            call(model, {"f": 1.0, "new": 2.0}, "d")
    assert pickle.dumps(model) == before
    call(model, {"f": 1.0}, "c")
    assert model.classifier.learner_.steps == (learned + 1) // 3


@pytest.mark.parametrize("learned", [0, 4])
def test_a_frame_that_fails_in_the_middle_was_never_learned(
    learned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first rows, and the room for the feature that comes with the last, are undone."""
    model = with_labels(*"abca"[:learned])
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301  (our own)
    before = pickle.dumps(model)
    frame = pd.DataFrame({"f": np.arange(8.0), "late": [None] * 6 + [1.0, 2.0]})
    labels = pd.Series(list("abcdabcd"))
    step = type(model.classifier).partial_fit
    calls: list[int] = []

    def second_fails(*given: Any, **options: Any) -> Any:
        calls.append(1)
        return step(*given, **options) if len(calls) == 1 else refuse()

    with monkeypatch.context() as broken:
        broken.setattr(type(model.classifier), "partial_fit", second_fails)
        with pytest.raises(StopHereError):
            model.learn_many(pd.concat([frame, frame]), pd.concat([labels, labels]))
    assert len(calls) == 2
    assert pickle.dumps(model) == before
    for own in (model, twin):
        own.learn_many(frame, labels)
    for x in frame.to_dict("records"):
        assert model.predict_proba_one(x) == twin.predict_proba_one(x)


def test_forgetting_reaches_what_waits() -> None:
    """A class that waits, one that is learned, one that is both."""
    model = with_labels("cow", "dog", "eel", "dog", "ant")
    model.forget("dog")
    assert list(model.predict_proba_one({"f": 1.0})) == ["ant", "cow", "eel"]
    assert b"dog" not in pickle.dumps(model)
    model.forget({"ant"})  # it only waits
    assert model._waiting == []
    model.forget(["cow"])  # it is only learned
    assert model.predict_one({"f": 1.0}) == "eel"
    with pytest.raises(InputError, match=r"'cow'.* never seen"):
        model.forget(["eel", "cow"])
    assert model.predict_one({"f": 1.0}) == "eel"


def test_a_waiting_row_does_not_keep_forgotten_ones_alive() -> None:
    model = RiverClassifier(batch_size=3, **SMALL)
    model.learn_many(pd.DataFrame({"f": [1.25, 2.5]}), pd.Series(["a", "b"]))
    model.forget("a")
    (row, _), *others = model._waiting
    assert (row.tolist(), row.base, others) == ([2.5], None, [])


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_model_that_has_forgotten_every_label_predicts_nothing(rows: int) -> None:
    model = with_labels(*"abca"[:rows])
    model.forget(list("abc"[:rows]))
    x, frame = {"f": 1.0}, pd.DataFrame({"f": [1.0, 2.0]})
    assert (model.predict_proba_one(x), model.predict_one(x)) == ({}, None)
    assert model.predict_many(frame).tolist() == [None, None]
    assert model.predict_proba_many(frame).shape == (2, 0)
    model.learn_one(x, 7)  # other kinds of labels may come, which at first wait
    assert model.predict_proba_one(x) == {7: 1.0}
    model.learn_one(x, 7)
    model.learn_one({"f": -9.0}, 8)
    assert model.predict_one(x) == 7


def test_unknown_labels_cannot_be_forgotten() -> None:
    with pytest.raises(InputError, match=r"'a'.* never seen"):
        RiverClassifier().forget("a")
    with pytest.raises(AttributeError, match="forget"):
        RiverClassifier("er").forget("a")
