"""Tables as they are: text, categories, truth values and missing numbers, of any library."""

import copy
import datetime
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer

from deepccg import CCGClassifier, DeepCCGClassifier, InputError
from deepccg.estimator.columns import FEWEST_SLOTS, MOST_SLOTS, Categories, Columns
from deepccg.estimator.saved_header import SavedColumns

ROWS = 130
COLOURS = ("red", "green", "blue")


def table(rows: int = ROWS, seed: int = 0) -> tuple[pd.DataFrame, npt.NDArray[np.str_]]:
    """A number, a truth value, a colour and a number with gaps; the label rests on the colour."""
    random = np.random.default_rng(seed)
    kind = random.integers(3, size=rows)
    gaps = random.normal(50, 5, size=rows)
    gaps[random.random(rows) < 0.2] = np.nan
    frame = pd.DataFrame(
        {
            "size": random.normal(1000, 10, size=rows),
            "round": random.random(rows) < 0.5,
            "colour": np.array(COLOURS)[kind],
            "gaps": gaps,
        }
    )
    return frame, np.array(["ant", "bee", "cow"])[kind]


def by_hand(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """The same as numbers: the most frequent colour first, gaps by the mean."""
    colours = frame["colour"].value_counts()
    order = sorted(colours.index, key=lambda name: (-colours[name], name))
    hot = np.zeros((len(frame), FEWEST_SLOTS))
    hot[np.arange(len(frame)), [order.index(name) for name in frame["colour"]]] = 1
    gaps = SimpleImputer().fit_transform(frame[["gaps"]])
    numbers = frame[["size", "round"]].to_numpy(float)
    return np.hstack([numbers, hot, gaps])


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        pl.from_pandas,
        pa.Table.from_pandas,
        lambda frame: frame.astype({"colour": "category", "round": object}),
        lambda frame: pl.from_pandas(frame).with_columns(pl.col("colour").cast(pl.Categorical)),
        lambda frame: frame.convert_dtypes(),
    ],
    ids=["pandas", "polars", "arrow", "category", "polars category", "nullable"],
)
def test_every_library_and_type_means_the_same(convert: Any) -> None:
    frame, y = table()
    model = CCGClassifier(random_state=0).fit(convert(frame), y)
    same = CCGClassifier(random_state=0).fit(by_hand(frame), y)
    expected = same.predict_proba(by_hand(frame))
    np.testing.assert_allclose(model.predict_proba(convert(frame)), expected, atol=1e-9)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.n_features_in_ == 4
    assert model.score(convert(frame), y) == 1


def test_the_learned_embedding_takes_tables() -> None:
    frame, y = table()
    model = DeepCCGClassifier(encoder="identity", random_state=0).partial_fit(frame, y)
    same = DeepCCGClassifier(encoder="identity", random_state=0).partial_fit(by_hand(frame), y)
    expected = same.predict_proba(by_hand(frame))
    np.testing.assert_allclose(model.predict_proba(frame), expected, atol=1e-12)


def test_what_was_learned_is_encoded_alike_ever_after(tmp_path: Path) -> None:
    frame, y = table()
    model = CCGClassifier(random_state=0).partial_fit(frame, y)
    before = model.predict_proba(frame)
    late = frame[:20].assign(colour="violet")
    model.partial_fit(late, ["dog"] * 20)
    assert model.predict(late).tolist() == ["dog"] * 20
    model.save(tmp_path / "model")
    copies = (
        CCGClassifier.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(model)),  # noqa: S301
        copy.deepcopy(model),
    )
    for each in (model, *copies):
        each.partial_fit(late, ["dog"] * 20)
        each.unlearn(late, ["dog"] * 20).unlearn(late, ["dog"] * 20)
        np.testing.assert_allclose(each.predict_proba(frame), before, atol=1e-6)


def test_two_that_met_the_same_values_merge() -> None:
    frame, y = table()
    further, z = table(80, seed=1)
    model = CCGClassifier(random_state=0).partial_fit(frame, y)
    worker = model.empty_copy().partial_fit(further.assign(colour="violet"), z)
    whole = copy.deepcopy(model).partial_fit(further.assign(colour="violet"), z)
    model.merge(worker)
    np.testing.assert_allclose(
        model.predict_proba(further), whole.predict_proba(further), atol=1e-6
    )
    other = worker.empty_copy().partial_fit(further.assign(colour="pink"), z)
    model.partial_fit(further.assign(colour="white"), z)
    before = model.predict_proba(further)
    with pytest.raises(InputError, match="values of the column 'colour' in different order"):
        model.merge(other)
    np.testing.assert_array_equal(model.predict_proba(further), before)


def test_a_value_never_learned_counts_as_missing() -> None:
    frame, y = table()
    model = CCGClassifier(random_state=0).fit(frame, y)
    unknown = model.predict_proba(frame.assign(colour="violet"))
    np.testing.assert_array_equal(unknown, model.predict_proba(frame.assign(colour=None)))
    assert "violet" not in json.dumps(model._columns.to_json())


def test_missing_numbers_are_the_mean_of_the_first_hundred() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(7, 2, size=(120, 3)), random.integers(2, size=120)
    x[random.random(x.shape) < 0.1] = np.nan
    model = CCGClassifier(random_state=0)
    for row in range(120):
        model.partial_fit(x[row : row + 1], y[row : row + 1])
    for column, mean in zip(x.T, model._columns.mean, strict=True):
        present = column[~np.isnan(column)]
        assert mean == pytest.approx(present[:100].mean())
    filled = np.where(np.isnan(x), model._columns.mean, x)
    np.testing.assert_array_equal(model.predict_proba(x), model.predict_proba(filled))


def test_rows_of_weight_0_leave_no_trace() -> None:
    frame, y = table()
    weight = np.where(frame["colour"] == "red", 0.0, 1.0)
    model = CCGClassifier(random_state=0).fit(frame, y, sample_weight=weight)
    kept = weight > 0
    same = CCGClassifier(random_state=0).fit(frame[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(model.predict_proba(frame), same.predict_proba(frame))
    assert "red" not in json.dumps(model._columns.to_json())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([datetime.date(2024, 1, 1)] * 4, "'a' holds dates or times: give numbers"),
        ([datetime.timedelta(1)] * 4, "'a' holds dates or times"),
        (pd.period_range("2024", periods=4), "'a' holds dates or times"),
        ([1, "x", 2.0, None], "'a' holds float and int and str: make all"),
        ([{"b": 1}] * 4, "'a' holds dict"),
        ([np.inf, 1.0, 2.0, 3.0], "infinity"),
    ],
    ids=["date", "duration", "period", "mixed", "dict", "infinite"],
)
def test_what_is_neither_number_nor_text_is_refused(values: Any, message: str) -> None:
    frame = pd.DataFrame({"t": list("uvuv"), "a": values})
    with pytest.raises(InputError, match=message) as refusal:
        CCGClassifier().partial_fit(frame, [0, 1, 0, 1])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", [CCGClassifier, DeepCCGClassifier])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.full((4, 2), np.datetime64("2024-01-01")), "X holds dates or times: give numbers"),
        ([[np.timedelta64(1, "D")]] * 4, "X holds dates or times"),
        (np.array([["a", 1.0]] * 4, dtype=object), "holds text .*'a'.*: give a data frame"),
        (pd.DataFrame(np.ones((4, 3)), columns=list("aab")), "unique column names.*'a' 2 times"),
    ],
    ids=["dates", "durations", "text", "names twice"],
)
def test_arrays_and_frames_that_cannot_be_read_are_refused(kind: Any, x: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        kind().partial_fit(x, [0, 1, 0, 1])
    assert "\n" not in str(refusal.value)


def test_columns_are_checked() -> None:
    frame, y = table()
    model = CCGClassifier(random_state=0).fit(frame, y)
    for changed, message in (
        (frame[frame.columns[::-1]], "same order as they were in fit"),
        (frame.rename(columns={"size": "mass"}), "unseen at fit time"),
        (frame.assign(size="big"), "'size' held numbers when learning began and now holds text"),
        (frame.assign(colour=1.5), "'colour' held text when learning began and now holds numbers"),
        (frame[:0], "no rows"),
        (by_hand(frame), "a data frame with text or categories was learned"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(changed)
    with pytest.raises(InputError, match="cannot be exported: encode them"):
        model.export("model.onnx")


def test_declared_categories_have_their_slots_at_once() -> None:
    many = [f"c{i:02d}" for i in range(40)]
    for declared in (
        pd.DataFrame({"a": pd.Categorical(["c07"], categories=many)}),
        pl.DataFrame({"a": pl.Series(["c07"], dtype=pl.Enum(many))}),
    ):
        own = CCGClassifier().partial_fit(declared, [0])._columns.categories[0]
        assert own is not None
        assert set(own.values) == set(many)
        assert own.values[0] == "c07"


def test_a_column_of_too_many_values_keeps_the_frequent_ones() -> None:
    values = [f"v{i}" for i in range(400)] + ["often"] * 3
    own = Categories.of(values)
    assert (own.values[0], own.slots, len(own.values)) == ("often", MOST_SLOTS, MOST_SLOTS - 1)
    left = sorted(set(values) - set(own.values))
    assert (own.encode([*left, "never"]).argmax(axis=1) == MOST_SLOTS - 1).all()


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b", "", "é", "nan"]),
            st.one_of(st.just(np.nan), st.floats(-1e300, 1e300)),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_rows_can_be_read_back_whatever_came_when(
    rows: list[tuple[str | None, float]], first: int
) -> None:
    texts = [text for text, _ in rows]
    values = np.array([[np.nan, value] for _, value in rows])
    columns = Columns.of([Categories.of(texts[:first]), None])
    for part in (slice(0, first), slice(first, None)):
        columns = columns.learned(values[part], {0: texts[part]})
        saved = SavedColumns.model_validate(json.loads(json.dumps(columns.to_json())))
        columns = saved.columns()
    found = columns.encode(values, {0: texts})
    assert found.shape == (len(rows), columns.width)
    known = columns.categories[0]
    assert known is not None
    hot, numbers = found[:, :-1], found[:, -1]
    assert [known.values[row.argmax()] if row.any() else None for row in hot] == texts
    present = ~np.isnan(values[:, 1])
    np.testing.assert_array_equal(numbers[present], values[present, 1])
    if present.any():
        mean = np.mean(values[present, 1] / 1e10) * 1e10
        assert columns.mean[1] == pytest.approx(mean, rel=1e-9, abs=1e285)


def test_a_file_with_columns_that_do_not_fit_is_refused() -> None:
    good = {"categories": [{"values": ["a"], "slots": 16}], "count": [0.0], "mean": [0.0]}
    SavedColumns.model_validate(good)
    for bad in (
        {"categories": [{"values": ["a", "a"], "slots": 16}]},
        {"categories": [{"values": ["a", "b"], "slots": 2}]},
        {"categories": [{"values": [], "slots": 10**9}]},
        {"mean": [float("nan")]},
        {"count": [-1.0]},
    ):
        with pytest.raises(ValueError, match=r"values|slots|mean|count"):
            SavedColumns.model_validate({**good, **bad})
