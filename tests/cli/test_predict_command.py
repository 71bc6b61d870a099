"""``deepccg predict``: labels for image files with a finished run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepccg.core import Task
from deepccg.experiment import RunResult, load, run
from deepccg.streams import from_arrays, load_dataset

COUNT = 12


@pytest.fixture
def pictures() -> Path:
    """Test digits as PNG files; the names sort like the rows, one lies deeper."""
    folder = Path("pictures")
    (folder / "x").mkdir(parents=True)
    for row, pixels in enumerate(load_dataset("digits").test.x[:COUNT, 0]):
        deeper = "x/" if row == COUNT - 1 else ""
        Image.fromarray(pixels).save(folder / f"{deeper}{row:02}.png")
    (folder / "notes.txt").write_text("not an image")
    return folder


def rows() -> torch.Tensor:
    return torch.from_numpy(load_dataset("digits").test.x[:COUNT])


def test_labels_and_probabilities_are_the_learners(deepccg, finished: RunResult, pictures) -> None:
    done = deepccg("predict", finished.directory, pictures, "--json")
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    assert [each["image"] for each in shown] == [
        *(f"{row:02}.png" for row in range(COUNT - 1)),
        str(Path("x") / f"{COUNT - 1:02}.png"),
    ]
    learner = load(finished.directory)
    assert [each["label"] for each in shown] == [str(c) for c in learner.predict(rows()).tolist()]
    proba = learner.predict_proba(rows())
    for each, row in zip(shown, proba.tolist(), strict=True):
        values = each["probabilities"]
        assert sum(values.values()) == pytest.approx(1, abs=1e-5)
        assert list(values.values()) == sorted(values.values(), reverse=True)
        assert next(iter(values)) == each["label"]
        for label, p in zip(learner.classes, row, strict=True):
            assert values.get(str(label), 0.0) == pytest.approx(p, abs=1e-6)


def test_classes_restrict_what_is_possible(deepccg, finished: RunResult, pictures) -> None:
    done = deepccg("predict", finished.directory, pictures, "--json", "--classes", "3, 8,5")
    shown = json.loads(done.out)
    right = finished.learner.predict(rows(), Task(-1, (3, 8, 5))).tolist()
    assert [each["label"] for each in shown] == [str(label) for label in right]
    for each in shown:
        assert set(each["probabilities"]) <= {"3", "8", "5"}
        assert sum(each["probabilities"].values()) == pytest.approx(1, abs=1e-5)


def test_the_table_shows_the_best_few(deepccg, finished: RunResult, pictures) -> None:
    done = deepccg("predict", finished.directory, pictures, "--top", "2")
    assert (done.code, done.err) == (0, "")
    labels = finished.learner.predict(rows()).tolist()
    proba = finished.learner.predict_proba(rows())
    for row, (label, p) in enumerate(zip(labels, proba.max(dim=1).values.tolist(), strict=True)):
        (line,) = [line for line in done.out.splitlines() if f"{row:02}.png" in line]
        _, shown, *likely = line.split()
        assert shown == str(label)
        assert likely[:2] == [str(label), f"{p:.2f},"]
        assert len(likely) == 4


def test_a_single_file(deepccg, finished: RunResult, pictures) -> None:
    done = deepccg("predict", finished.directory, pictures / "03.png", "--json")
    (shown,) = json.loads(done.out)
    assert shown["image"] == "03.png"
    assert shown["label"] == str(int(finished.learner.predict(rows()[3:4])))


def test_larger_colour_images_are_fitted(deepccg, finished: RunResult) -> None:
    Path("one").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (31, 47, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("one/photo.jpg")
    (shown,) = json.loads(deepccg("predict", finished.directory, "one", "--json").out)
    assert shown["image"] == "photo.jpg"


def check_one_line(done, says: str) -> None:
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("Error: ")
    assert says in done.err


def test_images_that_are_not_there_are_one_line(deepccg, finished: RunResult) -> None:
    Path("empty").mkdir()
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("text")
    for folder in ("empty", "texts", "nowhere"):
        check_one_line(
            deepccg("predict", finished.directory, folder), f"there are no images in {folder}"
        )
    for name in ("texts/a.txt", "texts/b.png"):
        Path(name).write_text("text")
        check_one_line(
            deepccg("predict", finished.directory, name), f"cannot read the image {name}"
        )


def test_unknown_classes_are_one_line(deepccg, finished: RunResult, pictures) -> None:
    check_one_line(
        deepccg("predict", finished.directory, pictures, "--classes", "3,owl"),
        "unknown class 'owl'; known: 0, 1, 2",
    )
    check_one_line(
        deepccg("predict", finished.directory, pictures, "--classes", "3,3"), "names a class twice"
    )


def test_a_run_that_cannot_label_is_one_line(
    deepccg, finished: RunResult, pictures, tmp_path: Path
) -> None:
    check_one_line(deepccg("predict", "nowhere", pictures), "is not a run directory")
    damaged = Path(shutil.copytree(finished.directory, tmp_path / "damaged"))
    (damaged / "checkpoint.safetensors").write_bytes(b"x")
    check_one_line(deepccg("predict", damaged, pictures), "is damaged or not a checkpoint")
    (damaged / "config.toml").write_text("x")
    check_one_line(deepccg("predict", damaged, pictures), "is not valid TOML")
    x, y = np.eye(4), np.arange(4)
    run(directory=tmp_path / "vectors", data=from_arrays(x, y, x, y), method="sgd")
    check_one_line(deepccg("predict", tmp_path / "vectors", pictures), "was trained on vectors")


def test_a_user_defined_class_is_named_not_imported(
    deepccg, finished: RunResult, pictures, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished.directory, tmp_path / "copy"))
    config = copy / "config.toml"
    config.write_text(config.read_text().replace('"er"', '"deepccg.methods.er:ER"'))
    check_one_line(
        deepccg("predict", copy, pictures),
        "was run with deepccg.methods.er:ER: if you trust it, add --method deepccg.methods.er:ER",
    )
    done = deepccg("predict", copy, pictures, "--method", "deepccg.methods.er:ER", "--json")
    assert done.out == deepccg("predict", finished.directory, pictures, "--json").out
