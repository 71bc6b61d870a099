"""Metrics against examples worked out by hand, and properties they must have."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepccg.records import (
    ClassScore,
    Estimate,
    Evaluation,
    RecordError,
    TaskScore,
    accuracy_matrix,
    aggregate,
    anytime_accuracy,
    append_record,
    average_accuracy,
    backward_transfer,
    class_balanced_accuracy,
    class_incremental_by_task,
    estimate,
    forgetting,
    read_records,
    summary,
)
from deepccg.records.schema import record_from_json

MODES = ("task", "class")


def disjoint_run(correct, images=10) -> list[Evaluation]:
    """One class per task, one evaluation per row ``correct[t, i]``, the same in both modes."""
    return [
        Evaluation(
            step=t + 1,
            examples=10 * (t + 1),
            task=t,
            final=t + 1 == len(correct),
            images=images * (t + 1),
            of_images=images * len(correct),
            tasks=tuple(TaskScore(i, (i,), images, int(row[i]), int(row[i])) for i in range(t + 1)),
            classes=tuple(ClassScore(i, images, int(row[i]), float(row[i])) for i in range(t + 1)),
        )
        for t, row in enumerate(correct)
    ]


BY_HAND = [[9, 0, 0], [5, 8, 0], [7, 2, 6]]


@pytest.mark.parametrize("mode", MODES)
def test_a_small_run_by_hand(mode):
    run = disjoint_run(BY_HAND)
    nan = np.nan
    matrix = [[0.9, nan, nan], [0.5, 0.8, nan], [0.7, 0.2, 0.6]]
    np.testing.assert_array_equal(accuracy_matrix(run, mode), matrix)
    assert average_accuracy(run, mode) == pytest.approx(0.5)
    assert forgetting(run, mode) == pytest.approx((0.9 - 0.7 + 0.8 - 0.2) / 2)
    assert backward_transfer(run, mode) == pytest.approx((0.7 - 0.9 + 0.2 - 0.8) / 2)
    assert anytime_accuracy(run, mode) == pytest.approx((0.9 + 0.65 + 0.5) / 3)
    assert class_balanced_accuracy(run, mode) == pytest.approx(0.5)


def overlapping() -> Evaluation:
    """Two windows sharing class 1; classes of 10, 20 and 10 images, counts chosen to differ."""
    return Evaluation(
        step=9,
        examples=90,
        task=1,
        final=True,
        images=40,
        of_images=400,
        tasks=(TaskScore(0, (0, 1), 30, 24, 12), TaskScore(1, (1, 2), 30, 15, 18)),
        classes=(ClassScore(0, 10, 1, 8.0), ClassScore(1, 20, 11, 12.0), ClassScore(2, 10, 7, 7.0)),
    )


def test_overlapping_windows_by_hand():
    run = [overlapping()]
    assert average_accuracy(run, "task") == pytest.approx((24 / 30 + 15 / 30) / 2)
    assert average_accuracy(run, "class") == pytest.approx(19 / 40)  # each image once
    assert class_incremental_by_task(run) == pytest.approx((12 / 30 + 18 / 30) / 2)
    assert class_balanced_accuracy(run, "task") == pytest.approx((0.8 + 0.6 + 0.7) / 3)
    assert class_balanced_accuracy(run, "class") == pytest.approx((0.1 + 0.55 + 0.7) / 3)


def test_what_is_not_defined_is_none():
    assert set(summary([]).values()) == {None}

    only_the_end = summary([overlapping()])
    missing = {name for name, value in only_the_end.items() if value is None}
    kinds = ("forgetting", "backward_transfer", "anytime_accuracy")
    assert missing == {f"{mode}_{kind}" for mode in MODES for kind in kinds}

    one_task = disjoint_run([[7]]) * 2
    assert forgetting(one_task, "task") is None
    assert backward_transfer(one_task, "task") is None
    assert anytime_accuracy(one_task, "task") == pytest.approx(0.7)

    task_two_was_skipped = [disjoint_run(BY_HAND)[t] for t in (0, 2)]
    assert forgetting(task_two_was_skipped, "task") is None
    assert np.isnan(accuracy_matrix(task_two_was_skipped, "task")[1]).all()


def needing_a_task(evaluation: Evaluation) -> Evaluation:
    data = evaluation.to_json()
    for score in (*data["tasks"], *data["classes"]):
        score["class_correct"] = None
    return record_from_json(data)


def test_a_method_that_needs_a_task_has_task_metrics_only():
    run = disjoint_run(BY_HAND)
    masked = summary([needing_a_task(evaluation) for evaluation in run])
    for name, value in summary(run).items():
        assert masked[name] == (value if name.startswith("task_") else None)


def test_the_last_evaluation_of_a_task_counts():
    early, *run = disjoint_run([[1], [5, 8], [7, 2, 6]])
    late = disjoint_run(BY_HAND)[0]
    assert accuracy_matrix([early, late, *run], "task")[0, 0] == 0.9
    assert forgetting([early, late, *run], "task") == forgetting([late, *run], "task")


triangles = st.integers(2, 6).flatmap(
    lambda size: hnp.arrays(np.int64, (size, size), elements=st.integers(0, 10))
)


@given(triangles, st.sampled_from(MODES))
def test_forgetting_and_transfer_bound_each_other(correct, mode):
    run = disjoint_run(correct)
    # the best is at least what was reached when the task was learned
    assert forgetting(run, mode) >= -backward_transfer(run, mode) - 1e-12
    assert -1 <= backward_transfer(run, mode) <= 1

    monotone = disjoint_run(np.minimum.accumulate(correct, axis=0))
    assert forgetting(monotone, mode) == pytest.approx(-backward_transfer(monotone, mode))
    assert forgetting(monotone, mode) >= 0


@given(triangles, st.data())
def test_one_task_dropping_at_the_end_is_forgotten_by_its_share(correct, data):
    constant = np.broadcast_to(correct[-1], correct.shape)
    assert forgetting(disjoint_run(constant), "task") == 0
    drop = data.draw(st.integers(0, len(correct) - 2))
    assume(correct[-1, drop] > 0)
    dropped = np.array(constant)
    dropped[-1, drop] = 0
    expected = correct[-1, drop] / 10 / (len(correct) - 1)
    assert forgetting(disjoint_run(dropped), "task") == pytest.approx(expected)


def test_metrics_are_the_same_after_reading_the_records_again(tmp_path):
    run = disjoint_run(BY_HAND)
    for evaluation in run:
        append_record(tmp_path / "records.jsonl", evaluation)
    assert summary(read_records(tmp_path / "records.jsonl")) == summary(run)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_the_standard_error_uses_the_unbiased_variance(values):
    result = estimate(values)
    assert result.n == len(values)
    assert result.mean == pytest.approx(np.mean(values))
    assert result.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)))


def test_aggregates_are_over_all_runs_or_none():
    runs = [{"a": 0.2, "b": 0.5, "c": None}, {"a": 0.4, "b": None, "c": None}]
    result = aggregate(runs)
    assert result["a"].mean == pytest.approx(0.3)
    assert result["a"].standard_error == pytest.approx(0.1)
    assert result["a"].n == 2
    assert result["b"] is result["c"] is None
    assert aggregate(runs[:1])["b"] == Estimate(0.5, None, 1)
    with pytest.raises(RecordError):
        aggregate([])
