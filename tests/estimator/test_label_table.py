"""Codes never move, whatever labels come and however they sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError
from deepccg.estimator.labels import LabelTable

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
    assert [table.labels[p] for p in table.positions()] == list(reference)


@given(st.sets(st.integers(0, 9)), st.permutations(list(range(10))))
def test_closing_up_keeps_labels_and_order(gone: set[int], order: list[int]) -> None:
    table = LabelTable.empty().extended(np.array(order))  # label order[c] has the code c
    left = table.renumbered(table.closing_up(gone))
    kept = [order[code] for code in range(10) if code not in gone]
    assert left.labels.tolist() == sorted(kept)
    assert [int(left.labels[p]) for p in left.positions()] == kept


def test_numbers_and_names_do_not_mix() -> None:
    table = LabelTable.empty().extended(np.array([1, 2]))
    with pytest.raises(InputError, match="numbers and names"):
        table.extended(np.array(["3"]))
    assert table.extended(np.array([True, 2.0, 7])).labels.tolist() == [1, 2, 7]


def test_an_unknown_label_is_named() -> None:
    table = LabelTable.empty().extended(np.array(["a", "longer name"]))
    with pytest.raises(InputError, match="'b'"):
        table.encode(np.array(["a", "b"]))
