"""The examples run, on small data, learn something, and print what the documentation says."""

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def own_images() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "own_images.py"))


@pytest.fixture(scope="module")
def text_stream() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "text_stream.py"))


def test_a_folder_of_class_folders(
    own_images: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    stripes = {"across": np.s_[::4], "down": np.s_[:, ::4], "plain": np.s_[:0]}
    for name, where in stripes.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(15):
            pixels = random.integers(0, 80, size=(16, 16, 3), dtype=np.uint8)
            pixels[where] += np.uint8(150)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    accuracy = own_images["main"](tmp_path / "images", cache=tmp_path / "cache")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "3 classes, 36 images to learn from, 9 held out"
    assert [line.split(":")[0] for line in printed[1:3]] == ["2 classes", "3 classes"]
    assert accuracy > 0.6


def test_digits_become_files(own_images: dict[str, Any], tmp_path: Path) -> None:
    own_images["write_digits"](tmp_path / "digits", per_class=2, side=20)
    files = sorted((tmp_path / "digits").rglob("*.png"))
    assert len(files) == 20
    assert {file.parent.name for file in files} == {f"digit {digit}" for digit in range(10)}
    assert {Image.open(file).size for file in files} == {(20, 20)}


@pytest.mark.slow
def test_docstrings_of_installed_packages(
    text_stream: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    accuracy = text_stream["main"](per_package=100)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert printed[0].startswith("numpy and matplotlib: 160 learned; of 40 held out ")
    assert accuracy > 0.3  # of six packages; by chance 0.17


def test_packages_are_read_and_not_run(
    text_stream: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "dangerous"
    (package / "tests").mkdir(parents=True)
    said = "Words that a docstring should have, and that are more than seven."
    (package / "__init__.py").write_text(f'"""{said}"""\nraise SystemExit("it was run")\n')
    (package / "short.py").write_text('"""Too short."""\ndef f():\n    """' + said + ' Twice."""\n')
    (package / "broken.py").write_text("def f(:\n")
    (package / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (package / "tests" / "more.py").write_text(f'"""{said} In a test."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    found = text_stream["docstrings"]("dangerous", 10)
    assert sorted(found) == [said, f"{said} Twice."]
    assert len(text_stream["docstrings"]("dangerous", 1)) == 1
    assert "dangerous" not in sys.modules
    assert text_stream["docstrings"]("no_such_package", 10) == []


def test_the_answer_is_not_in_the_vectors(text_stream: dict[str, Any]) -> None:
    with_name, without = text_stream["vectors"](["an array of numpy", "an array of"])
    np.testing.assert_array_equal(with_name, without)
    assert (without**2).mean() == pytest.approx(1)


def test_new_classes(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = runpy.run_path(str(EXAMPLES / "new_classes.py"))["main"]()
    printed = capsys.readouterr().out.splitlines()
    assert accuracy > 0.8
    assert len(printed) == 6
    assert printed[-1].endswith("stored: 100 ([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])")


@pytest.mark.slow
def test_tabular_drift(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "tabular_drift.py"))["main"](rows=60)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in printed[2:]] == list(found)
    assert [len(accuracies) for accuracies in found.values()] == [4] * 7
    images, *_ = found["DeepCCG"]
    assert images > 2 / 7  # of seven classes, the first predictions included
