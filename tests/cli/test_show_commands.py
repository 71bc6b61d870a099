"""``methods``, ``data``, ``stream`` and ``version``: what there is."""

import platform
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.methods import METHODS
from deepccg.streams import build_stream, load_dataset

FIRST = {"lr", "replay", "train_mask", "replay_mask", "selector", "renewal", "posterior", "quota"}


def test_methods_lists_all_of_them(deepccg) -> None:
    done = deepccg("methods")
    assert (done.code, done.err) == (0, "")
    for name in METHODS:
        assert re.search(rf"^ +{name} +\S", done.out, re.MULTILINE)


@pytest.mark.parametrize("width", ["80", "200"])
@pytest.mark.parametrize("name", METHODS)
def test_a_methods_fields_are_shown_with_default_and_meaning(
    deepccg, monkeypatch: pytest.MonkeyPatch, name: str, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    done = deepccg("methods", name)
    assert (done.code, done.err) == (0, "")
    for field, about in METHODS[name].Config.model_fields.items():
        assert about.description
        first_words = " ".join(about.description.split()[:3])
        line = re.search(rf"^ +{field} +(\S+) +(.*)$", done.out, re.MULTILINE)
        assert line is not None, field
        assert line.group(1) == str(about.default)
        assert line.group(2).startswith(first_words)
    assert re.search(r"Reference: .*\b(19|20)\d\d\b", done.words)  # a paper


def test_the_fields_that_people_set_first_come_first(deepccg) -> None:
    out = deepccg("methods", "deepccg").out
    first, further = out.split("Further readings of the paper")
    for field in METHODS["deepccg"].Config.model_fields:
        part = first if field in FIRST else further
        assert re.search(rf"^ +{field} +\S", part, re.MULTILINE), field
    assert "Further readings" not in deepccg("methods", "er").out


@pytest.mark.parametrize("name", METHODS)
def test_fields_named_as_first_exist(name: str) -> None:
    config = METHODS[name].Config
    assert set(config.first_fields) <= set(config.model_fields)


def test_a_class_can_be_shown_by_its_name(deepccg) -> None:
    assert deepccg("methods", "deepccg.methods.er:ER").out == deepccg("methods", "er").out
    done = deepccg("methods", "nope")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_data_says_cached_of_what_a_run_would_find(deepccg, write_cifar10) -> None:
    def cached(*options: object) -> str:
        (row,) = re.findall(r"^ +cifar10 .*$", deepccg("data", *options).out, re.MULTILINE)
        return row.split()[-1]

    here = ("--data-dir", write_cifar10())
    assert (cached(), cached(*here)) == ("no", "no")
    done = deepccg("run", "--dataset", "cifar10", *here, "--method", "ncm", "--json")
    assert (done.code, "decoding" in done.err) == (0, True)
    assert (cached(), cached(*here)) == ("no", "yes")  # of these files, not of the hub
    assert "decoding" not in deepccg("stream", "--dataset", "cifar10", *here).err


def test_data_lists_the_named_data_sets(deepccg, tmp_path: Path) -> None:
    done = deepccg("data")
    assert (done.code, done.err) == (0, "")
    for name, classes, size in (
        ("digits", 10, "1x8x8"),
        ("cifar10", 10, "3x32x32"),
        ("cifar100", 100, "3x32x32"),
        ("mini-imagenet", 100, "3x84x84"),
    ):
        line = rf"^ +{name} +{classes} +{size} .* (-|no) *$"  # whole, in 80 columns
        assert re.search(line, done.out, re.MULTILINE)
    assert "uoft-cs/cifar10" in done.out
    assert str(tmp_path / "cache") in done.out.replace("\n", "")
    assert "hf:owner/name" in done.out
    assert "mini-imagenet: from timm/mini-imagenet; after Vinyals" in done.words
    assert "not exactly their classes" in done.words
    (tmp_path / "cache" / "cifar10").mkdir(parents=True)  # of another source, or unfinished
    assert re.search(r"^ +cifar10 .* no *$", deepccg("data").out, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "tasks", "per_task"),
    [("disjoint", 5, 280), ("shifting-window", 9, 140), ("gaussian", 5, 280)],
)
def test_stream_lists_and_draws_the_tasks(deepccg, kind: str, tasks: int, per_task: int) -> None:
    done = deepccg("stream", "--stream", kind, "--seed", "4", "--png", "some/where/drawn.png")
    assert (done.code, done.err) == (0, "")
    total = f"{tasks} tasks, 10 classes, {tasks * per_task:,} examples, each seen once"
    assert total in done.words
    built = build_stream(kind, load_dataset("digits").train, classes_per_task=2, seed=4)
    for place, task in enumerate(built.tasks):
        names = ", ".join(str(label) for label in task.classes)
        assert re.search(rf"^ +{place} +{names} +{per_task} *$", done.out, re.MULTILINE)
    drawn = Path("some/where/drawn.png")
    assert drawn.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(drawn) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    coloured = pixels[np.ptp(pixels, axis=1) > 60]  # bands, not text or lines
    _, areas = np.unique(coloured, axis=0, return_counts=True)
    assert (areas > 0.005 * len(pixels)).sum() == 10  # a band for each class


def test_a_task_free_stream_says_so_and_domains_their_appearance(deepccg) -> None:
    done = deepccg("stream", "--stream", "blurry", "--blur", "0.3")
    assert (done.code, done.err) == (0, "")
    assert "each seen once; learned without tasks, which are what is scored" in done.words
    done = deepccg("stream", "--stream", "domain", "--domains", "3", "--imbalance", "2")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^ +0 +as it is +\d(, \d)+ +\d+ *$", done.out, re.MULTILINE)
    assert sorted(re.findall(r"turned by (\d+) degrees", done.words)) == ["120", "60"]
    assert Path("stream.png").exists()


def test_decoding_is_told_at_the_first_use(deepccg, write_digits, tmp_path) -> None:
    write_digits(Path("pictures"), classes=4, count=5)
    arguments = ("stream", "--dataset", "pictures/", "--classes-per-task", 2)
    first, second = deepccg(*arguments), deepccg(*arguments)
    assert (first.code, second.code) == (0, 0)
    (line,) = first.err.splitlines()
    assert line.startswith(f"decoding 16 images into {tmp_path / 'cache'}")  # four are for testing
    assert second.err == ""


def test_stream_takes_its_sizes(deepccg) -> None:
    done = deepccg(
        "stream", "--classes-per-task", "5", "--examples-per-class", "7", "--batch-size", "3"
    )
    assert "2 tasks, 10 classes, 70 examples" in done.words
    assert Path("stream.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--stream", "random"], "unknown stream 'random': choose one of disjoint"),
        (["--classes-per-task", "0"], "classes_per_task must be at least 1"),
        (["--classes-per-task", "11"], "11"),
        (["--batch-size", "0"], "batch_size must be at least 1"),
        (["--stream", "blurry", "--blur", "1"], "blur must be at least 0 and less than 1"),
        (["--stream", "gaussian", "--spread", "0"], "spread must be more than 0"),
        (["--stream", "domain", "--domains", "1"], "domains must be between 2 and 100"),
        (["--stream", "domain", "--appearance", "no"], "unknown appearance 'no'"),
        (["--imbalance", "1000"], "imbalance must be between 1 and"),
        (["--blur", "0.1"], "a disjoint stream has no blur"),
        (["--dataset", "nope"], "unknown data set 'nope'"),
    ],
)
def test_a_stream_that_cannot_be_is_one_line(deepccg, arguments: list[str], says: str) -> None:
    done = deepccg("stream", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
    assert not Path("stream.png").exists()


def test_version_shows_all_three(deepccg) -> None:
    done = deepccg("version")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"deepccg {version('deepccg')} "
        f"(Python {platform.python_version()}, torch {version('torch')})\n"
    )
