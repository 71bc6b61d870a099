"""Data sets that cannot be used, or are odd: every case has one defined answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from deepccg.core import InputError
from deepccg.experiment import load_run, run
from deepccg.methods import METHODS
from deepccg.streams import Dataset, from_arrays, load_dataset

RNG = np.random.default_rng(0)


ONE_BY_ONE = {"stream.classes_per_task": 1}


def vectors(*labels: Any, per_class: int = 6, **fields: Any) -> Dataset:
    y = np.repeat(np.array(labels), per_class)
    x = RNG.normal(size=(len(y), 5)) + 3 * np.repeat(np.eye(5)[: len(labels)], per_class, axis=0)
    return from_arrays(x, y, x, y, **fields)


GOOD = np.zeros((4, 3))
LABELS = [0, 1, 0, 1]
BAD_ARRAYS: dict[str, tuple[Any, Any, str]] = {
    "nan": (np.where(np.eye(4, 3) == 1, np.nan, 0.0), LABELS, "example 0 is not finite"),
    "infinity": (np.full((4, 3), np.inf), LABELS, "example 0 is not finite"),
    "beyond float32": (np.full((4, 3), 1e300), LABELS, "not finite .* as float32"),
    "float images": (np.zeros((4, 8, 8, 3)), LABELS, "images must be uint8, .*not float64: scale"),
    "int32 images": (np.zeros((4, 8, 8), dtype=np.int32), LABELS, "not int32: scale"),
    "bool images": (np.zeros((4, 8, 8), dtype=bool), LABELS, "not bool: scale"),
    "complex": (GOOD * 1j, LABELS, "vectors must be numbers, not complex128"),
    "text": (np.full((4, 3), "a"), LABELS, "vectors must be numbers, not <U1"),
    "objects": (np.full((4, 3), None), LABELS, "vectors must be numbers, not object"),
    "ragged": ([[1, 2], [3]], LABELS, "examples make no array"),
    "five channels": (np.zeros((4, 8, 8, 5), dtype=np.uint8), LABELS, "with 1 to 4 channels"),
    "channels first": (np.zeros((4, 3, 8, 8), dtype=np.uint8), LABELS, r"x\.transpose\(0, 2, 3, 1"),
    "one example": (np.zeros(3), LABELS, "vectors .* or images"),
    "no examples": (np.zeros((0, 3)), np.zeros(0, dtype=int), "there are no examples"),
    "labels as floats": (GOOD, [0.0, 1.0, 0.0, 1.0], "integers or strings, not float64"),
    "labels missing": (GOOD, [0, None, 0, 1], "integers or strings, not object"),
    "labels in rows": (GOOD, [[0], [1], [0], [1]], r"shape \[N\], not \[4, 1\]"),
    "labels ragged": (GOOD, [[0], [1, 2], [0], [1]], "labels make no array"),
    "one label too few": (GOOD, [0, 1, 0], r"4 examples need int64 labels of shape \[4\]"),
}


@pytest.mark.parametrize(("x", "y", "says"), BAD_ARRAYS.values(), ids=BAD_ARRAYS.keys())
def test_arrays_that_cannot_be_used(x: Any, y: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        from_arrays(x, y, x, y).train  # noqa: B018  (opened on use)
    assert str(caught.value).isprintable()


def test_string_labels_become_class_names(tmp_path: Path) -> None:
    """Data name classes as they like; learners and records number them, runs keep the names."""
    data = vectors("zebra", "ant", "Bee")
    assert data.class_names == ("Bee", "ant", "zebra")
    result = run(directory=tmp_path / "run", data=data, method="er", **ONE_BY_ONE)
    assert sorted(result.learner.classes) == [0, 1, 2]
    trained = load_run(result.directory)
    assert trained.class_names == data.class_names
    found = trained.learner.predict(torch.from_numpy(data.test.x))
    assert {trained.class_names[label] for label in found.tolist()} <= {"Bee", "ant", "zebra"}


def test_folders_name_their_classes(tmp_path: Path) -> None:
    for name in ("zebra", "ant", "10", "9"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(3):
            pixels = RNG.integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{i}.png")
    data = load_dataset(str(tmp_path / "data"), cache_dir=tmp_path / "cache")
    assert data.class_names == ("10", "9", "ant", "zebra")  # as text: in order of name


def test_labels_with_gaps_are_numbered(tmp_path: Path) -> None:
    data = vectors(1_000_003, 5, 70)
    assert data.class_names == ("5", "70", "1000003")
    result = run(directory=tmp_path / "run", data=data, method="sgd", **ONE_BY_ONE)
    assert sorted(result.learner.classes) == [0, 1, 2]


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"multi-task"}))
def test_one_class_alone_is_learned(tmp_path: Path, method: str) -> None:
    data = vectors(7)
    with pytest.raises(InputError, match="2 classes per task, but only 1 class"):
        run(directory=tmp_path / "run", data=data, method=method)
    result = run(directory=tmp_path / "run", data=data, method=method, **ONE_BY_ONE)
    assert result.summary["task_accuracy"] == 1.0


@pytest.mark.parametrize("method", ["er", "deepccg", "icarl", "agem", "protocl"])
def test_more_memory_per_class_than_examples(tmp_path: Path, method: str) -> None:
    settings = {"memory_per_class": 10**6, "stream.classes_per_task": 1}
    result = run(directory=tmp_path / "run", data=vectors(0, 1, 2), method=method, **settings)
    assert result.learner.memory_usage().examples == 18  # all there were


def test_a_class_without_training_or_test_images_is_refused(tmp_path: Path) -> None:
    x, y = np.zeros((4, 2)), [0, 0, 1, 1]
    with pytest.raises(InputError, match="there are no held-out examples of class 1"):
        run(directory=tmp_path / "a", data=from_arrays(x, y, x[:2], [0, 0]), method="sgd")
    with pytest.raises(InputError, match="the class '2' is not one of the 2 known classes"):
        run(directory=tmp_path / "b", data=from_arrays(x, y, x, [0, 1, 2, 2]), method="sgd")
    assert not (tmp_path / "a").exists()


def test_training_and_test_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"differ in shape: \[3\] and \[4\]"):
        from_arrays(GOOD, LABELS, np.zeros((4, 4)), LABELS)


QUICK = ("--method", "sgd", "--set", "stream.examples_per_class=4")


def test_an_output_directory_that_cannot_be_written(command: Callable[..., Any]) -> None:
    Path("file").write_text("kept")
    for out in ("file", "file/below"):
        said = command("run", *QUICK, "--out", out)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert said.err.startswith("Error: cannot write to file")
    assert Path("file").read_text() == "kept"


def test_a_file_in_the_place_of_the_runs_own_directory(tmp_path: Path) -> None:
    settings = {"method": "sgd", "stream.examples_per_class": 4}
    place = tmp_path / "run"
    place.write_text("kept")
    with pytest.raises(InputError, match="cannot write to"):
        run(directory=place, **settings)
    assert place.read_text() == "kept"


def test_data_that_changed_since_the_checkpoint_are_refused(tmp_path: Path) -> None:
    settings = {"directory": tmp_path / "run", "method": "er", "stream.classes_per_task": 1}
    x, y = RNG.normal(size=(12, 3)), np.repeat([0, 1], 6)
    run(data=from_arrays(x, y, x, y), **settings)
    with pytest.raises(InputError, match=r"the data changed since .* choose another directory"):
        run(data=from_arrays(x + 1e-3, y, x, y), **settings)
