"""Files of classifiers that somebody changed: loaded and of use, or refused in one line.

``mutated_files.py`` beside this changes them; ``make torture`` loads 2,000.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from mutated_files import KINDS, Figures, failure, learned, load_mutated, saved, written

from deepccg import DeepCCGClassifier
from deepccg.core import StateMismatch

FILES = int(os.environ.get("DEEPCCG_FUZZ_CASES", "60")) * 3


@pytest.mark.slow_for_most
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_nobody_changed_is_loaded_and_used(kind: str, tmp_path: Path) -> None:
    figures = Figures()
    assert failure(written(*saved(kind)), tmp_path, figures) is None
    assert figures.loaded == 1


@pytest.mark.slow
def test_a_changed_file_is_loaded_and_used_or_refused(tmp_path: Path) -> None:
    figures = load_mutated(FILES, tmp_path, seed=1)
    assert figures.errors == []
    assert min(figures.loaded, figures.refused) > FILES / 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["ant", "ant", "cow", "dog"]}, "labels and codes do not fit"),
        ({"labels": ["dog", "cow", "bee", "ant"]}, "labels and codes do not fit"),
        ({"labels": [1, 2, 3, 4]}, "not of the type <U3"),
        ({"labels": [["a"], "b", "c", "d"]}, "not of the type <U3"),
        ({"label_type": "<U2"}, "not of the type <U2"),
        ({"label_type": "<U1000000000"}, "not of the type <U1000000000"),
        ({"label_type": "|V8"}, "not of the type"),
        ({"label_type": "nonsense"}, "not of the type nonsense"),
        ({"codes": [0, 1, 2, 7]}, "labels and codes do not fit"),
        ({"codes": [0, 1, 2, -1]}, "its codes.3 is missing or broken"),
        ({"codes": "x"}, "its codes is missing or broken"),
        ({"tasks": [[0, 7]]}, "tasks and codes do not fit"),
        ({"tasks": [[]]}, "tasks and codes do not fit"),
        ({"tasks": [[0, 1]]}, "tasks are not those of the learner"),
        ({"input_shape": [4]}, "shapes and names do not fit"),
        ({"n_features_in": 2}, "shapes and names do not fit"),
        ({"feature_names": ["p"]}, "shapes and names do not fit"),
        ({"feature_names": 3}, "its feature_names is missing or broken"),
        ({"params": {"unknown": 1}}, "parameters that there are not: .'unknown'"),
        ({"plan": []}, "its plan is missing or broken"),
    ],
    ids=str,
)
def test_each_entry_is_checked(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    header, tensors = saved("deepccg")
    path = tmp_path / "model"
    path.write_bytes(written({**header, "about": {**header["about"], **changes}}, tensors))
    with pytest.raises(StateMismatch, match=f"model cannot be loaded: .*{message}") as refusal:
        DeepCCGClassifier.load(path)
    assert str(refusal.value).isprintable()


def test_labels_of_one_class_less_than_the_learner_has_are_refused(tmp_path: Path) -> None:
    """The codes are in order, and one is not the learner's."""
    header, tensors = saved("deepccg")
    about = {**header["about"], "labels": ["ant", "bee", "cow"], "codes": [0, 1, 2], "tasks": []}
    path = tmp_path / "model"
    path.write_bytes(written({**header, "about": about}, tensors))
    with pytest.raises(StateMismatch, match="labels are not those of the learner's classes"):
        DeepCCGClassifier.load(path)
    assert learned("deepccg").classes_.tolist() == ["ant", "bee", "cow", "dog"]
