"""Pictures are valid files that show the numbers they were given."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deepccg.records import (
    ClassScore,
    Estimate,
    Evaluation,
    RecordError,
    TaskScore,
    average_accuracy,
)
from deepccg.report import (
    accuracy_over_time,
    plot_accuracy_over_time,
    plot_comparison,
    plot_stream,
)
from deepccg.report.style import spread


def is_a_picture(path, least_width=1000) -> bool:
    with Image.open(path) as picture:
        picture.verify()
    with Image.open(path) as picture:
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
        left_over = [p for p in path.parent.iterdir() if p != path]
        return picture.width >= least_width and len(colours) > 10 and not left_over


def stream(classes: int, length: int, per_class: int, stride: int):
    """Examples by class and batch of 10, classes in order; and where tasks begin."""
    generator = np.random.default_rng(0)
    batches, starts = [], []
    for first in range(0, classes - length + 1, stride):
        starts.append(10 * len(batches))
        labels = np.repeat(np.arange(first, first + length), per_class)
        shuffled = generator.permutation(labels).reshape(-1, 10)
        batches.extend(np.bincount(batch, minlength=classes) for batch in shuffled)
    return np.array(batches).T, starts[1:]


def band(axes, row: int) -> tuple[float, float]:
    """From when to when the band of a class has a thickness."""
    corners = axes.collections[row].get_paths()[0].vertices
    thick = corners[np.abs(corners[:, 1] - row) > 1e-9]
    return thick[:, 0].min(), thick[:, 0].max()


@pytest.mark.parametrize(("classes", "length"), [(10, 2), (100, 5)])
def test_a_stream_shows_each_class_while_it_arrives(tmp_path, classes, length):
    presence, boundaries = stream(classes, length, 10, stride=1)
    path = tmp_path / "stream.png"
    names = [f"class {i}" for i in range(classes)]
    figure = plot_stream(presence, names, path, boundaries=boundaries)
    assert is_a_picture(path)
    axes = figure.axes[0]
    ends = [0, *boundaries, int(presence.sum())]
    for row in range(classes):
        first, last = max(0, row - length + 1), min(row, classes - length)
        assert band(axes, row) == (ends[first], ends[last + 1])
    assert {line.get_xdata()[0] for line in axes.lines} == set(boundaries)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first class on top
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown[0] == "class 0"
    assert len(shown) <= 20


def test_a_stream_without_tasks_shows_its_drift(tmp_path):
    """One class fades into the other: the bands' thickness follows the counts."""
    rising = np.arange(0, 1001)
    figure = plot_stream(np.stack([1000 - rising, rising]), ["a", "b"], tmp_path / "drift.png")
    for row, slope in ((0, -1), (1, 1)):
        corners = figure.axes[0].collections[row].get_paths()[0].vertices
        upper = corners[corners[:, 1] >= row]
        assert np.corrcoef(upper[:, 0], upper[:, 1])[0, 1] * slope > 0.99


def test_a_stream_that_cannot_be_drawn_is_refused(tmp_path):
    for presence, names in ((np.ones((2, 3), int), ["a"]), (np.zeros((1, 3), int), ["a"])):
        with pytest.raises(RecordError, match="cannot draw"):
            plot_stream(presence, names, tmp_path / "stream.png")
    assert not list(tmp_path.iterdir())


def run(task_correct, class_correct, every=10) -> list[Evaluation]:
    """One task of 100 images, evaluated again and again."""
    return [
        Evaluation(
            step=i,
            examples=every * (i + 1),
            task=0,
            final=False,
            images=100,
            of_images=100,
            tasks=(TaskScore(0, (0,), 100, task, class_),),
            classes=(ClassScore(0, 100, class_, float(task)),),
        )
        for i, (task, class_) in enumerate(zip(task_correct, class_correct, strict=True))
    ]


RUNS = {
    "deepccg": [run([50, 60, 70], [40, 30, 20]), run([54, 62, 78], [40, 34, 30])],
    "packnet": [run([30, 20, 10], [None, None, None])],
}


def test_accuracy_over_time_is_the_mean_over_seeds(tmp_path):
    path = tmp_path / "new" / "accuracy.png"
    figure = plot_accuracy_over_time(RUNS, path, title="toy")
    assert is_a_picture(path)
    task_axes, class_axes = figure.axes
    curves = {line.get_label(): line.get_xydata().tolist() for line in task_axes.lines}
    assert curves["deepccg"] == [[10, 52], [20, 61], [30, pytest.approx(74)]]
    assert curves["packnet"] == [[10, 30], [20, 20], [30, 10]]
    assert [line.get_label() for line in class_axes.lines] == ["deepccg"]  # the other needs a task

    corners = task_axes.collections[0].get_paths()[0].vertices
    at_end = corners[corners[:, 0] == 30][:, 1]
    assert (at_end.min(), at_end.max()) == (pytest.approx(70), pytest.approx(78))
    names = {text.get_text() for text in task_axes.texts}
    assert names == {"deepccg  74.0", "packnet  10.0"}


def test_only_moments_common_to_all_seeds_are_averaged():
    seeds = [run([50, 60, 70, 80], [1] * 4, every=10), run([10, 30], [1] * 2, every=20)]
    curve = accuracy_over_time(seeds, "task")
    assert {seen: at.mean for seen, at in curve.items()} == {20: 0.35, 40: pytest.approx(0.55)}
    assert accuracy_over_time(seeds[:1], "task")[40].mean == average_accuracy(seeds[0], "task")
    assert accuracy_over_time(RUNS["packnet"], "class") == {}


def test_nothing_to_show_is_said(tmp_path):
    figure = plot_accuracy_over_time({"packnet": RUNS["packnet"]}, tmp_path / "a.png")
    assert [text.get_text() for text in figure.axes[1].texts] == [
        "no method here predicts without a task"
    ]


def test_a_comparison_shows_both_numbers(tmp_path):
    path = tmp_path / "comparison.png"
    figure = plot_comparison(
        {
            "deepccg": (Estimate(0.70, 0.02, 3), (0.69, 0.01)),
            "er": (Estimate(0.65, None, 1), None),
            "packnet": (None, (0.5, 0.03)),
        },
        path,
        title="toy",
    )
    assert is_a_picture(path)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["deepccg", "er", "packnet"]
    drawn = [container.lines[0].get_xydata()[0] for container in axes.containers]
    rows = [(round(y), x) for x, y in drawn]
    assert rows == [(0, 70.0), (0, 69.0), (1, 65.0), (2, 50.0)]
    bars = [np.ptp(c.lines[2][0].get_segments()[0][:, 0]) for c in axes.containers if c.has_xerr]
    assert bars == pytest.approx([4, 2, 6])
    assert {text.get_text() for text in axes.texts} == {"70.0", "69.0", "65.0", "50.0"}
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["this library", "paper"]


heights = st.lists(st.floats(-100, 100), min_size=1, max_size=12).map(sorted)


@given(heights, st.floats(0.01, 20))
def test_labels_are_moved_apart_and_no_more(values, gap):
    moved = np.array(spread(values, gap))
    assert (np.diff(moved) >= gap - 1e-9).all()
    # the best of all positions at least that far apart: no single group can be shifted for gain
    cost = np.square(moved - values).sum()
    generator = np.random.default_rng(0)
    for _ in range(50):
        other = np.array(values) + generator.normal(0, gap, len(values))
        for i in range(1, len(other)):
            other[i] = max(other[i], other[i - 1] + gap)
        assert np.square(other - values).sum() >= cost - 1e-6
    assert min(spread(values, gap, lowest=0.0)) >= 0


def test_reports_draw_without_touching_pyplot_and_load_matplotlib_only_to_draw():
    code = (
        "import sys, deepccg.report as r; assert 'matplotlib' not in sys.modules;"
        "assert 'torch' not in sys.modules;"
        "import tempfile, pathlib;"
        "r.plot_comparison({}, pathlib.Path(tempfile.mkdtemp()) / 'a.png', title='');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
