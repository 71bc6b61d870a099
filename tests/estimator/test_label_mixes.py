"""Labels of any type beside each other: equal if and only if Python says so."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepccg import DeepCCGClassifier, InputError
from deepccg.estimator.inputs import check_labels
from deepccg.estimator.labels import LabelTable, task_labels
from deepccg.estimator.plain_labels import plain_labels
from deepccg.estimator.river import RiverClassifier

EDGES = [0, 1, -1, 2, 2**24 + 1, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**60]
LIMITS = [2**63 - 1, -(2**63), 2**63 - 512]
whole = st.sampled_from([*EDGES, *LIMITS]) | st.integers(-3, 3)
floating = st.sampled_from([0.0, -0.0, 1.0, 2.0, 2.0**24, 2.0**53, 2.0**53 + 2, -(2.0**60)])
names = st.sampled_from(["", "1", "a", "a\0", "b", "True", "long name", "\0"])
numbers = st.one_of(
    st.lists(whole, min_size=1, max_size=4),
    st.lists(floating, min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(whole | floating | st.booleans(), min_size=1, max_size=4),
)
values = numbers | st.lists(names, min_size=1, max_size=4)


def scalars(given_values: list[Any]) -> list[Any]:
    """Each as a NumPy scalar of a type of its own."""
    return [np.array(value)[()] if not isinstance(value, str) else value for value in given_values]


def unsigned(given_values: list[Any]) -> Any:
    """As uint64 where that is possible, else as they are."""
    if all(type(value) is int and value >= 0 for value in given_values):
        return np.array(given_values, dtype=np.uint64)
    return given_values


def narrow(given_values: list[Any]) -> Any:
    """In the smallest type that holds them."""
    array = np.array(given_values)
    if array.dtype.kind not in "if":
        return array
    kinds = ["i1", "i2", "i4"] if array.dtype.kind == "i" else ["f2", "f4", "g"]
    for kind in kinds:
        with np.errstate(all="ignore"):
            if (array.astype(kind).astype(array.dtype) == array).all():
                return array.astype(kind)
    return array


def as_objects(given_values: list[Any]) -> Any:
    return np.array(given_values, dtype=object)


CONTAINERS = [
    list, tuple, np.array, scalars, unsigned, narrow, as_objects, pd.Series,
    lambda v: pd.Series(v, dtype=object), lambda v: iter(v),
]  # fmt: skip


def held(container: Any) -> list[Any]:
    """The Python values that a container has: NumPy may have changed them before we see them."""
    listed = container.tolist() if hasattr(container, "tolist") else list(container)
    plain = [value.item() if isinstance(value, np.generic) else value for value in listed]
    return [int(value) if isinstance(value, np.longdouble) else value for value in plain]


@pytest.mark.slow
@settings(max_examples=600)
@given(st.lists(st.tuples(values, st.sampled_from(CONTAINERS)), min_size=1, max_size=5), st.data())
def test_labels_are_equal_where_python_says_so(calls: Any, data: st.DataObject) -> None:
    table, reference = LabelTable.empty(), {}
    for given_values, container in calls:
        python_values = held(container(given_values))
        known = {isinstance(label, str) for label in [*reference, *python_values]}
        y = container(given_values)
        try:
            labels = (
                check_labels(y, torch.zeros(len(python_values), 1))
                if data.draw(st.booleans()) and not hasattr(y, "__next__")
                else plain_labels(y)
            )
            table, codes = table.coded(labels)
        except InputError:
            assert len(known) == 2 or 2**63 in python_values  # as NumPy has rounded them
            continue
        assert len(known) == 1
        for label in python_values:
            reference.setdefault(label, len(reference))
        assert codes.tolist() == [reference[label] for label in python_values]
        assert table.labels.tolist() == sorted(reference)
        assert len(table) == len(reference)
        assert table.encode(labels).tolist() == codes.tolist()
        assert [table.labels.tolist()[p] for p in table.positions(range(len(table)))] == list(
            reference
        )


@given(numbers, numbers)
def test_a_task_allows_what_python_finds_in_it(allowed: list[Any], of: list[Any]) -> None:
    labels = plain_labels(of)
    if set(of) <= set(allowed):
        assert set(task_labels(allowed, of=labels).tolist()) == set(allowed)
    else:
        with pytest.raises(InputError, match="is not one of the task's"):
            task_labels(allowed, of=labels)


def test_large_whole_numbers_stay_apart_beside_floats() -> None:
    x, large = np.eye(3), [2**53, 2**53 + 1, 2**53 + 2]
    model = DeepCCGClassifier(random_state=0).partial_fit(x, large)
    model.partial_fit(x, [1.0, 2.0, 2.0**53])
    assert model.classes_.tolist() == [1, 2, *large]
    assert set(model.predict(x).tolist()) <= {1, 2, *large}
    model.forget(cls=2.0**53)
    assert model.classes_.tolist() == [1, 2, *large[1:]]


def test_small_whole_numbers_become_floats_beside_floats() -> None:
    """As NumPy has it, and as it was before there were large ones."""
    table = LabelTable.empty().extended(np.array([1, 2])).extended(np.array([3.0, 2.0]))
    assert table.labels.dtype == np.float64
    assert table.labels.tolist() == [1.0, 2.0, 3.0]


def test_river_keeps_them_apart_learned_or_waiting() -> None:
    large = [2**53 + 1, 2.0**53, 2**53, 3.0]
    model = RiverClassifier(seed=0, batch_size=3)
    for label in [*large, *large, *large]:
        model.learn_one({"a": float(label % 7)}, label)
    assert sorted(model.predict_proba_one({"a": 1.0})) == [3, 2**53, 2**53 + 1]
    model.forget(2.0**53)
    assert sorted(model.predict_proba_one({"a": 1.0})) == [3, 2**53 + 1]
    model.learn_one({"a": 1.0}, 2**53 + 1)
    assert sorted(model.predict_proba_one({"a": 1.0})) == [3, 2**53 + 1]
