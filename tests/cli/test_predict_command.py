"""``deepccg predict``: labels for image files with a finished run."""

import csv
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


def labelled(count: int) -> Path:
    """The first test digits as PNG files in folders named after their classes."""
    test = load_dataset("digits").test
    for row in range(count):
        place = Path("labelled") / str(test.y[row])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(test.x[row, 0]).save(place / f"{row:02}.png")
    return Path("labelled")


def test_labelled_images_are_scored(deepccg, finished: RunResult) -> None:
    count, test = 60, load_dataset("digits").test
    folder = labelled(count)
    Image.fromarray(test.x[count, 0]).save(folder / "stray.png")  # of no class
    done = deepccg("predict", finished.directory, folder, "--out", "labels.csv")
    assert done.code == 0
    predicted = finished.learner.predict(torch.from_numpy(test.x[:count])).numpy()
    right = int((predicted == test.y[:count]).sum())
    says = f"Accuracy: {100 * right / count:.1f} % ({right} of {count} images)"
    assert f"{says}; in no folder named after a class: 1" in done.words
    with Path("labels-confusion.csv").open() as file:
        (_, *columns), *rows = csv.reader(file)
    met = sorted({str(c) for c in (*predicted, *test.y[:count])})
    assert columns == [row[0] for row in rows] == met
    for true, *counts in rows:
        for label, shown in zip(columns, counts, strict=True):
            pairs = (test.y[:count] == int(true)) & (predicted == int(label))
            assert int(shown) == pairs.sum()
    with Path("labels.csv").open() as file:
        listed = {row["image"]: row for row in csv.DictReader(file)}
    assert len(listed) == count + 1
    assert listed["stray.png"]["true_label"] == ""
    for row in range(count):
        entry = listed[f"{test.y[row]}/{row:02}.png"]
        assert (entry["label"], entry["true_label"]) == (str(predicted[row]), str(test.y[row]))


def test_a_run_is_found_below_its_name(deepccg, finished: RunResult, pictures) -> None:
    shutil.copytree(finished.directory, "runs/name/seed-0")
    direct = deepccg("predict", finished.directory, pictures, "--json")
    assert deepccg("predict", "runs/name", pictures, "--json").out == direct.out
    shutil.copytree(finished.directory, "runs/name/seed-1")
    says = "runs/name has 2 runs: give one of runs/name/seed-0, runs/name/seed-1"
    check_one_line(deepccg("predict", "runs/name", pictures), says)
    Path("nothing").mkdir()
    check_one_line(deepccg("predict", "nothing", pictures), "is not a run directory")


def test_unreadable_images_can_be_skipped(deepccg, finished: RunResult, pictures) -> None:
    whole = deepccg("predict", finished.directory, pictures, "--json")
    torn = (pictures / "00.png").read_bytes()[:60]
    (pictures / "torn.png").write_bytes(torn)
    check_one_line(deepccg("predict", finished.directory, pictures), "torn.png")
    done = deepccg("predict", finished.directory, pictures, "--json", "--skip-unreadable")
    assert (done.code, done.out) == (0, whole.out)
    assert done.err == f"skipped, as unreadable: {pictures}/torn.png\nskipped in all: 1\n"
