"""Names that are not UTF-8, and names that mean something to matplotlib."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from killing import Forks, Outcome
from matplotlib.text import Text
from PIL import Image

from deepccg.core import InputError
from deepccg.experiment import run
from deepccg.report.figures import stream_from_counts
from deepccg.report.figures.matplotlib import draw
from deepccg.streams import load_dataset

MATHS = ("$\\frac{a}{$", "$\\nosuch$", "10$ or 20$")
needs_bytes = pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 here")


def write_pets(folder: bytes, classes: tuple[bytes, ...], names: bytes = b"%d.png") -> Path:
    """Six pictures of each class."""
    generator = np.random.default_rng(0)
    for name in classes:
        os.makedirs(os.path.join(folder, name))  # noqa: PTH103, PTH118  (paths of bytes)
        for i in range(6):
            picture = Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            picture.save(os.path.join(folder, name, names % i).decode(errors="surrogateescape"))  # noqa: PTH118
    return Path(os.fsdecode(folder))


@pytest.fixture
def strictly(forks: Forks, tmp_path: Path) -> Callable[..., Outcome]:
    """Runs the program where nothing but UTF-8 can be printed."""

    def call(*arguments: object) -> Outcome:
        variables = {**os.environ, "COLUMNS": "120"}
        return forks([*map(str, arguments)], str(tmp_path), environment=variables)

    return call


@pytest.mark.slow
@needs_bytes
def test_images_whose_names_are_not_utf8_are_learned_and_labelled(
    strictly: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    odd = write_pets(os.fsencode(tmp_path / "odd"), (b"a", b"b"), b"%d\xff.png")
    assert len(load_dataset(str(odd)).train) + len(load_dataset(str(odd)).test) == 12
    finished = run(dataset=str(odd), method="sgd", directory=tmp_path / "run")
    assert finished.directory == tmp_path / "run"
    shown = strictly("predict", tmp_path / "run", odd)
    assert (shown.status, shown.err) == (0, "")
    assert "a/3\\udcff.png" in shown.out
    entries = json.loads(strictly("predict", tmp_path / "run", odd, "--json").out)
    assert [os.fsencode(odd / entry["image"]) for entry in entries] == [
        os.fsencode(odd) + b"/%s/%d\xff.png" % (name, i) for name in (b"a", b"b") for i in range(6)
    ]
    (odd / os.fsdecode(b"a/0\xff.png")).write_bytes(b"damaged")
    refused = strictly("predict", tmp_path / "run", odd)
    assert refused.status == 2
    assert refused.err.count("\n") == 1


@pytest.mark.slow
@needs_bytes
def test_classes_and_data_sets_whose_names_are_not_utf8_are_refused(
    strictly: Callable[..., Outcome], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    folder = write_pets(os.fsencode(tmp_path / "pets"), (b"a\xff", b"b"))
    with pytest.raises(InputError, match=r"the class folder .* is not UTF-8: rename it"):
        load_dataset(str(folder), cache_dir=cache)
    folder = write_pets(os.fsencode(tmp_path) + b"/pets\xff", (b"a", b"b"))
    with pytest.raises(InputError, match=r"^dataset is .*, which is not UTF-8: rename it"):
        run(dataset=str(folder), method="sgd", directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    refused = strictly("run", "--dataset", folder, "--out", tmp_path / "runs")
    assert refused.status == 2
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@needs_bytes
def test_a_place_whose_name_is_not_utf8_is_written_and_reported(
    strictly: Callable[..., Outcome], tmp_path: Path
) -> None:
    place = tmp_path / os.fsdecode(b"out\xff")
    settings = ["--method", "sgd", "--set", "stream.examples_per_class=4"]
    assert strictly("run", *settings, "--out", place).status == 0
    page = tmp_path / "page.html"
    shown = strictly("report", place, "--out", page, "--export", place / "figures")
    assert (shown.status, shown.err) == (0, "")
    assert "sgd" in page.read_text(encoding="utf-8")
    assert list((place / "figures").glob("*.png"))


@pytest.mark.slow
def test_class_names_with_dollar_signs_are_drawn_as_they_are(
    tmp_path: Path, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    folder = write_pets(os.fsencode(tmp_path / "$x_$pets$"), tuple(n.encode() for n in MATHS))
    done = command("run", "--dataset", folder, "--method", "sgd,er", "--out", tmp_path / "runs")
    assert done.code == 0, done.err
    shown = command("report", tmp_path / "runs", "--export", tmp_path / "figures")
    assert (shown.code, shown.err) == (0, "")
    stream = [path for path in (tmp_path / "figures").glob("*.pdf") if "stream" in path.name]
    assert len(stream) == 1
    done = command("stream", "--dataset", folder, "--png", tmp_path / "stream.png")
    assert (done.code, done.err) == (0, "")


def test_a_name_that_would_be_a_formula_is_drawn_letter_by_letter() -> None:
    figure = stream_from_counts(np.ones((3, 3), dtype=np.int64), ["$x^2$", "$y$", "z"])
    drawing = draw(figure, title="$t$")
    drawing.canvas.draw()
    texts = [text for text in drawing.findobj(Text) if "$" in text.get_text()]
    assert {text.get_text() for text in texts} == {"$x^2$", "$y$", "$t$"}
    assert not any(text.get_parse_math() for text in texts)
