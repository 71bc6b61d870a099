"""Records keep every number through JSON and refuse what could not have been measured."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepccg.records import ClassScore, Evaluation, RecordError, TaskScore, Training
from deepccg.records.schema import record_from_json as from_json
from deepccg.records.schema import record_line


def an_evaluation() -> Evaluation:
    return Evaluation(
        step=50,
        examples=500,
        task=1,
        final=False,
        images=30,
        of_images=100,
        tasks=(TaskScore(0, (3, 7), 20, 15, 11), TaskScore(1, (7, 1), 20, 18, 10)),
        classes=(ClassScore(3, 10, 6, 8.0), ClassScore(7, 10, 5, 7.5), ClassScore(1, 10, 5, 10.0)),
    )


def without(data: dict, key: str) -> dict:
    return {name: value for name, value in data.items() if name != key}


def test_an_evaluation_survives_json():
    evaluation = an_evaluation()
    data = evaluation.to_json()
    assert json.loads(json.dumps(data)) == data  # nothing but plain JSON values
    assert from_json(json.loads(json.dumps(data))) == evaluation


def test_a_confusion_is_written_only_where_there_is_one():
    evaluation = an_evaluation()
    assert not any("mistaken" in score for score in evaluation.to_json()["classes"])
    row = ClassScore(3, 10, 6, 8.0, ((1, 3), (7, 1)))
    confused = replace(evaluation, classes=(row, *evaluation.classes[1:]))
    assert confused.to_json()["classes"][0]["mistaken"] == [[1, 3], [7, 1]]
    assert from_json(record_line(confused)) == confused


@pytest.mark.parametrize(
    "mistaken", [((1, 3),), ((1, 5),), ((3, 4),), ((1, 2), (1, 2)), ((1, 4), (7, 0))], ids=str
)
def test_a_confusion_must_add_up(mistaken):
    with pytest.raises(RecordError):
        ClassScore(3, 10, 6, 8.0, mistaken)
    with pytest.raises(RecordError):
        ClassScore(3, 10, None, 8.0, ())


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(0, 10**9), finite, st.dictionaries(st.text(), finite))
def test_training_survives_json(step, loss, extra):
    record = Training(step, loss, extra)
    assert from_json(json.loads(json.dumps(record.to_json(), allow_nan=False))) == record


@pytest.mark.parametrize("part", [(), ("tasks", 0), ("classes", 0)])
def test_every_key_is_needed_and_no_other_allowed(part):
    def edited(edit):
        data = an_evaluation().to_json()
        if not part:
            return edit(data)
        name, index = part
        data[name][index] = edit(data[name][index])
        return data

    original = an_evaluation().to_json()
    target = original if not part else original[part[0]][part[1]]
    for key in target:
        with pytest.raises(RecordError, match=f"{key} is missing" if key != "type" else "not None"):
            from_json(edited(lambda data, key=key: without(data, key)))
    with pytest.raises(RecordError, match="mood is an unknown key"):
        from_json(edited(lambda data: data | {"mood": 1}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 1.5}, "step should be a valid integer, not 1.5"),
        ({"step": True}, "step should be a valid integer, not True"),
        ({"step": -1}, "step should be greater than or equal to 0, not -1"),
        ({"final": 1}, "final should be a valid boolean, not 1"),
        ({"images": 31}, "do not add up to 31"),
        ({"of_images": 29}, "of_images must be at least 30"),
        ({"task": 2}, "the current task 2 has no score"),
        ({"tasks": {}}, "tasks should be a valid tuple, not {}"),
        ({"classes": 3}, "classes should be a valid tuple, not 3"),
        ({"type": "mystery"}, "not 'mystery'"),
    ],
)
def test_a_wrong_evaluation_is_named_in_one_line(change, message):
    with pytest.raises(RecordError, match=message) as error:
        from_json(an_evaluation().to_json() | change)
    assert "\n" not in str(error.value)


def test_counts_cannot_exceed_the_images():
    with pytest.raises(RecordError, match="task_correct must be at most 4"):
        TaskScore(0, (1,), 4, 5, 0)
    with pytest.raises(RecordError, match="class_correct must be at most 4"):
        TaskScore(0, (1,), 4, 0, 5)
    with pytest.raises(RecordError, match=r"task_correct must be at most 4, not 4\.5"):
        ClassScore(1, 4, 0, 4.5)
    with pytest.raises(RecordError, match="images should be greater than or equal to 1, not 0"):
        ClassScore(1, 0, 0, 0.0)
    with pytest.raises(RecordError, match="no classes"):
        TaskScore(0, (), 4, 0, 0)


def test_class_scores_are_missing_everywhere_or_nowhere():
    data = an_evaluation().to_json()
    data["tasks"][0]["class_correct"] = None
    with pytest.raises(RecordError, match="null everywhere or nowhere"):
        from_json(data)
    for score in (*data["tasks"], *data["classes"]):
        score["class_correct"] = None
    assert from_json(data).tasks[1].class_correct is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", None])
def test_training_numbers_are_finite(value):
    with pytest.raises(RecordError, match="loss should be a finite number"):
        Training(1, value)
    with pytest.raises(RecordError, match="norm should be a finite number"):
        Training(1, 0.5, {"norm": value})


@pytest.mark.parametrize("value", [True, np.int64(3), np.float32(0.5), 2**63, "3"])
def test_only_plain_numbers_are_taken(value):
    with pytest.raises(RecordError, match="loss should be a finite number"):
        Training(1, value)
    with pytest.raises(RecordError, match="step should be"):
        Training(value, 0.5)
    with pytest.raises(RecordError, match="norm should be"):
        Training(1, 0.5, {"norm": value})


def test_the_line_on_disk():
    record = Training(3, 1e-05, {"terms": 20, "scale": 1.0, "größe": 1e16})
    assert record_line(record) == (
        b'{"type":"training","step":3,"loss":1e-05,'
        b'"extra":{"terms":20,"scale":1.0,"gr\\u00f6\\u00dfe":1e+16}}'
    )
    assert record_line(an_evaluation()).startswith(
        b'{"type":"evaluation","step":50,"examples":500,"task":1,"final":false,"images":30,'
        b'"of_images":100,"tasks":[{"task":0,"classes":[3,7],"images":20,"task_correct":15,'
        b'"class_correct":11},'
    )
    assert b'"classes":[{"label":3,"images":10,"class_correct":6,"task_correct":8.0},' in (
        record_line(an_evaluation())
    )


def test_records_cannot_be_changed():
    with pytest.raises(AttributeError):
        an_evaluation().step = 3


@pytest.mark.parametrize("data", [None, 3, [], "evaluation"])
def test_a_record_is_an_object(data):
    with pytest.raises(RecordError):
        from_json(data)
