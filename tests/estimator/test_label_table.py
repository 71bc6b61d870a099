"""Codes never move, whatever labels come and however they sort; and what may be a label."""

from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError
from deepccg.estimator.labels import LabelTable
from deepccg.estimator.plain_labels import plain_labels

NAMES = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), max_size=5)
NUMBERS = st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=6), max_size=5)


@given(NAMES | NUMBERS)
def test_codes_follow_first_appearance(calls: list[list[object]]) -> None:
    table, reference = LabelTable.empty(), {}
    for call in calls:
        table = table.extended(np.array(call))
        for label in call:
            reference.setdefault(label, len(reference))
        assert table.encode(np.array(call)).tolist() == [reference[label] for label in call]
    assert table.labels.tolist() == sorted(reference)
    assert [table.labels[p] for p in table.positions(range(len(table)))] == list(reference)


@given(st.sets(st.integers(0, 9)), st.permutations(list(range(10))))
def test_removing_codes_keeps_labels_and_order(gone: set[int], order: list[int]) -> None:
    table = LabelTable.empty().extended(np.array(order))  # label order[c] has the code c
    left = table.without(gone).table
    kept = [order[code] for code in range(10) if code not in gone]
    assert left.labels.tolist() == sorted(kept)
    assert [int(left.labels[p]) for p in left.positions(range(len(left)))] == kept


def test_numbers_and_names_do_not_mix() -> None:
    table = LabelTable.empty().extended(np.array([1, 2]))
    with pytest.raises(InputError, match="numbers and names"):
        table.extended(np.array(["3"]))
    assert table.extended(np.array([True, 2.0, 7])).labels.tolist() == [1, 2, 7]


def test_an_unknown_label_is_named() -> None:
    table = LabelTable.empty().extended(np.array(["a", "longer name"]))
    with pytest.raises(InputError, match="'b'"):
        table.encode(np.array(["a", "b"]))


def test_unsigned_labels_stay_whole_numbers_beside_signed_ones() -> None:
    table = LabelTable.empty().extended(np.array([7, 2**53 + 1], dtype=np.uint64))
    table = table.extended(np.array([-1]))
    assert table.labels.dtype == np.int64
    assert table.labels.tolist() == [-1, 7, 2**53 + 1]
    assert table.encode(np.array([7], dtype=np.uint64)).tolist() == [0]
    with pytest.raises(InputError, match=r"9223372036854775808 .* int64"):
        table.extended(np.array([2**63], dtype=np.uint64))


def test_nothing_is_known_to_an_empty_table() -> None:
    with pytest.raises(InputError, match=r"'a'.* was never seen: known are \[\]"):
        LabelTable.empty().encode(np.array(["a"]))


class Colour(str, Enum):  # noqa: UP042  (``StrEnum`` is what NumPy understands)
    """Names that differ where NumPy no longer looks."""

    RED = "red"
    ROSE = "rose"
    BLUE = "blue"


@pytest.mark.parametrize("hold", [list, tuple, lambda names: np.array(names, dtype=object)])
def test_members_of_an_enumeration_are_their_text(hold: Callable[[Any], Any]) -> None:
    assert plain_labels(hold([Colour.RED, Colour.ROSE, "x"])).tolist() == ["red", "rose", "x"]
    assert plain_labels(Colour.BLUE).tolist() == ["blue"]
    assert {type(name) for name in plain_labels(hold(list(Colour))).tolist()} == {str}


@pytest.mark.parametrize(
    "names", [{"b", "a"}, frozenset("ba"), {"a": 1, "b": 2}.keys(), iter("ab")]
)
def test_labels_may_come_in_any_collection(names: Any) -> None:
    """Those of a set in an order that every run repeats."""
    assert plain_labels(names).tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "values",
    [
        [1.5],
        [("a", "b")],
        [(1, 2), 3],
        [{1}],
        [b"a"],
        [1j],
        [date(2020, 1, 1)],
        np.array(["2020-01-01"], dtype="M8[D]"),
        [np.ones(2)],
        [float("inf")],
        2**63,
        [1, 2**63],
        [-1, 2**63],
        [1, 2**70],
        [-(2**63) - 1],
        np.array([2**63], dtype=np.uint64),
        np.array([1, 2**70], dtype=object),
    ],
    ids=repr,
)
def test_values_that_cannot_be_labels(values: Any) -> None:
    with pytest.raises(InputError, match="Unknown label type: ") as refusal:
        plain_labels(values)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "values",
    [
        [None],
        [float("nan")],
        ["a", float("nan")],
        [pd.NA],
        [pd.NaT, 1],
        pd.Series(["a", None], dtype="string"),
        pd.Series([1, None], dtype="Int64"),
    ],
)
def test_a_missing_label(values: Any) -> None:
    with pytest.raises(InputError, match="y contains NaN or None"):
        plain_labels(values)


def test_numbers_keep_their_type() -> None:
    for values in ([True, False], [3, -7], [2.0, 1.0], [2**63 - 1, -(2**63)], ["a", "bb"]):
        labels = plain_labels(values).tolist()
        assert labels == values
        assert {type(label) for label in labels} == {type(values[0])}
    assert plain_labels(np.array([1, 2], dtype=np.uint64)).dtype == np.int64
    with pytest.raises(InputError, match="cannot be mixed"):
        plain_labels(["a", 1])
