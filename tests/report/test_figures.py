"""Figures show the numbers they were given, the same ones on the page and on paper."""

import base64
import io
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

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
    Training,
    average_accuracy,
    find_runs,
)
from deepccg.report import RowDetails, Stored, group_runs, read_run
from deepccg.report.catalogue import comparison_figures
from deepccg.report.figures import (
    SeriesStyle,
    accuracy_curves,
    accuracy_over_time,
    comparison_dots,
    loss_curves,
    save,
    series_styles,
    stream_from_counts,
    svg,
)
from deepccg.report.figures.description import (
    Axis,
    Figure,
    Panel,
    Point,
    Series,
    axis_between,
    rounded_axis,
)
from deepccg.report.figures.matplotlib import draw, spread

EVIL = "<script>alert(1)</script>\"'&"


def is_a_picture(path, least_width=1000) -> bool:
    with Image.open(path) as picture:
        picture.verify()
    with Image.open(path) as picture:
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
        left_over = [p for p in path.parent.iterdir() if p != path]
        return picture.width >= least_width and len(colours) > 10 and not left_over


def parsed(panel: Panel) -> ET.Element:
    return ET.fromstring(str(svg(panel)))  # noqa: S314  (made by this package)


class OnPage:
    """A panel read back from its SVG: pixels become values by the numbers beside the axes."""

    def __init__(self, panel: Panel) -> None:
        self.root = parsed(panel)
        foot = self.root.find("g[@class='foot']")
        across = [(number(t.text), float(t.get("x"))) for t in foot.findall("text[@class='tick']")]
        if panel.y.categories:
            names = [name for _, name in panel.y.ticks]
            labels = self.root.iterfind(".//text[@class='label']")
            down = [(panel.y.ticks[k][0], float(t.get("y")) - 4) for k, t in enumerate(labels)]
            assert len(down) == len(names)
            if len(down) == 1:
                down.append((1, down[0][1] + float(self.root.get("data-step"))))
        else:
            ticks = self.root.findall("text[@class='tick']")
            sided = [t for t in ticks if t.get("text-anchor") == "end"]
            down = [(number(t.text), float(t.get("y")) - 4) for t in sided]
        self.x = inverse(across, log=panel.x.log)
        self.y = inverse(down, log=panel.y.log)
        self.groups = [g for g in self.root.findall("g") if g.get("class") != "foot"]

    def line(self, group: ET.Element) -> list[tuple[float, float]]:
        path = group.find("path[@class='line']")
        if path is None:
            return []
        pairs = re.findall(r"([-\d.]+) ([-\d.]+)", path.get("d"))
        return [(self.x(float(a)), self.y(float(b))) for a, b in pairs]

    def points(self, group: ET.Element) -> list[tuple[float, float]]:
        moved = [p.get("transform") for p in group.iter("path") if p.get("transform")]
        pairs = [map(float, re.findall(r"[-\d.]+", each)) for each in moved]
        return [(self.x(a), self.y(b)) for a, b in pairs]

    def bars(self, group: ET.Element) -> list[tuple[float, float, float, float]]:
        found = []
        for rect in group.iter("rect"):
            x, y, width, height = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
            found.append((self.x(x), self.x(x + width), self.y(y + height), self.y(y)))
        return found


def number(text: str) -> float:
    return float(text.replace(",", "").replace("M", "e6").removesuffix(" %"))


def inverse(pairs, *, log):
    """From pixels to values, through two ticks."""
    (low, first), (high, last) = pairs[0], pairs[-1]
    if log:
        return lambda at: low * (high / low) ** ((at - first) / (last - first))
    return lambda at: low + (at - first) / (last - first) * (high - low)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), min_size=1, max_size=6)
)
def test_names_of_points_hide_neither_each_other_nor_a_point(places):
    """Each has room somewhere: on a grid, some at the same place, some joined to another."""
    series = tuple(
        Series(f"method {k}", points=(Point(x, y), *([Point(x + 0.5, y)] if two else [])))
        for k, (x, y, two) in enumerate(places)
    )
    axis = Axis("", 0.0, 10.0)
    panel = Panel("", axis, axis, series, names="points", width=900, height=600)
    drawing = draw(Figure((panel,)))
    drawing.draw_without_rendering()
    (axes,) = drawing.axes
    names = [text.get_window_extent() for text in axes.texts]
    markers = [axes.transData.transform((p.x, p.y)) for each in series for p in each.points]
    assert [text.get_text() for text in axes.texts] == [each.label for each in series]
    for k, box in enumerate(names):
        assert drawing.bbox.contains(*box.min)
        assert drawing.bbox.contains(*box.max)
        assert not any(box.overlaps(other) for other in names[:k])
        assert not any(box.contains(*place) for place in markers)


@pytest.fixture(scope="module")
def described(runs: Path) -> dict[str, Figure]:
    """Every figure of a comparison of real runs, and one with numbers of the paper."""
    comparison = group_runs([run for each in find_runs([runs]) if (run := read_run(each))])[0]
    images = np.arange(3 * 64, dtype=np.uint8).reshape(3, 1, 8, 8)
    stored = Stored(images, np.array([1, 0, 1]), (1, 0, 2), tuple("abc"))
    details = {row.key: RowDetails("", {}, stored) for row in comparison.rows}
    styles = series_styles((row.label, row.method) for row in comparison.rows)
    found = comparison_figures(comparison, details, styles)
    both = {"er": (Estimate(0.65, 0.02, 3), Estimate(0.6, 0.01, 3)), "sgd": (None, None)}
    return {**found, "paper": comparison_dots(both)}


NAMES = (
    *("accuracy", "stream", "final", "forgetting", "shift", "misalignment"),
    *("cost-passes", "cost-seconds", "paper"),
)


@pytest.mark.parametrize("name", NAMES)
def test_page_and_paper_show_the_same_data(described, name):
    figure = described[name]
    for panel, axes in zip(figure.panels, draw(figure).axes, strict=True):
        page = OnPage(panel)
        assert len(page.groups) == len(panel.series) > 0
        on_paper = [tuple(place) for line in axes.lines for place in line.get_xydata().tolist()]
        boxes = [patch.get_bbox() for patch in axes.patches]
        corners = {tuple(np.round((box.x0, box.x1, box.y0, box.y1), 6)) for box in boxes}
        for group, series in zip(page.groups, panel.series, strict=True):
            points = [(point.x, point.y) for point in series.points]
            assert_close(page.line(group), series.line, panel)
            assert_close(page.points(group), points, panel)
            assert {*points, *series.line} <= set(on_paper)
            bars = [(bar.left, bar.right, bar.bottom, bar.top) for bar in series.bars]
            assert {tuple(np.round(bar, 6)) for bar in bars} <= corners
            drawn = page.bars(group)
            assert_close([bar[::2] for bar in drawn], [bar[::2] for bar in bars], panel)
            assert_close([bar[1::2] for bar in drawn], [bar[1::2] for bar in bars], panel)
    assert any(s.points or s.bars for panel in figure.panels for s in panel.series)


def assert_close(drawn, described, panel) -> None:
    """The same places, up to what a tenth of a pixel is worth."""
    assert len(drawn) == len(described)
    for place, true in zip(drawn, described, strict=True):
        for value, exact, axis in zip(place, true, (panel.x, panel.y), strict=True):
            within = {"rel": 0.01} if axis.log else {"abs": 0.005 * abs(axis.high - axis.low)}
            assert value == pytest.approx(exact, **within)


def test_page_and_paper_show_the_same_images(described):
    maps, memory = described["tasks"], next(v for k, v in described.items() if "memory" in k)
    for figure in (maps, memory):
        for panel, axes in zip(figure.panels, draw(figure).axes, strict=False):
            root = parsed(panel)
            source = root.find("image").get("href").partition(",")[2]
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source))))
            assert np.array_equal(pixels, panel.image)
            assert np.array_equal(axes.images[0].get_array(), panel.image)
            numbers = [
                t.text for t in root.iter("text") if (t.get("class") or "").startswith("on-")
            ]
            assert numbers == [t.get_text() for t in axes.texts] == [t.text for t in panel.texts]


def test_names_in_a_figure_are_text_and_nothing_else():
    style = SeriesStyle(0, method=EVIL)
    point = Point(1, 0, text=EVIL, tooltip=EVIL)
    series = Series(EVIL, style, points=(point,), tooltip=EVIL)
    axis = Axis(EVIL, 0, 1, ((0, EVIL),), categories=True)
    panel = Panel(EVIL, Axis(EVIL, 0, 2, ((0, EVIL),)), axis, (series,), alt=EVIL)
    assert "<script" not in svg(panel)
    assert "style=" not in svg(panel)  # the page's policy and its themes want none
    root = parsed(panel)
    assert root.find("g[@data-method]").get("data-method") == EVIL
    assert root.get("aria-label") == f"{EVIL}. {EVIL}"


def test_axes_have_round_numbers():
    axis = rounded_axis("", [3.2, 47.0])
    assert axis.low <= 3.2
    assert axis.high >= 47.0
    assert (axis.low, axis.high) == (axis.ticks[0][0], axis.ticks[-1][0])
    assert rounded_axis("", [98.7, 103.0], limits=(0, 100)).high == 100
    for low, high, log in (
        (0.3, 7.7, False),
        (0.45, 1.9, True),
        (1, 1e6, True),
        (0.26, 0.31, True),
    ):
        inside = [value for value, _ in axis_between("", low, high, log=log).ticks]
        assert 2 < len(inside) < 9
        assert all(low <= value <= high for value in inside)


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


@pytest.mark.parametrize(("classes", "length"), [(10, 2), (100, 5)])
def test_a_stream_shows_each_class_while_it_arrives(tmp_path, classes, length):
    presence, boundaries = stream(classes, length, 10, stride=1)
    figure = stream_from_counts(presence, [f"class {i}" for i in range(classes)], boundaries)
    save(figure, tmp_path / "stream.png", title="toy")
    assert is_a_picture(tmp_path / "stream.png")
    (panel,) = figure.panels
    ends = [0, *boundaries, int(presence.sum())]
    for row, series in enumerate(panel.series):
        first, last = max(0, row - length + 1), min(row, classes - length)
        (bar,) = series.bars
        assert (bar.left, bar.right) == (ends[first], ends[last + 1])
        assert (bar.top + bar.bottom) / 2 == row
    shown = [rule.value for rule in panel.rules]
    assert set(shown) <= set(boundaries)
    assert shown == boundaries if len(boundaries) < 10 else len(shown) > 5
    axes = draw(figure).axes[0]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first class on top
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "class 0"
    assert len(names) <= 20


def test_a_stream_without_tasks_shows_its_drift():
    """One class fades into the other: the bars' thickness follows the counts."""
    rising = np.arange(0, 1001)
    (panel,) = stream_from_counts(np.stack([1000 - rising, rising]), ["a", "b"]).panels
    for series, slope in zip(panel.series, (-1, 1), strict=True):
        places = [(bar.left, bar.bottom - bar.top) for bar in series.bars]
        assert np.corrcoef(np.transpose(places))[0, 1] * slope > 0.99


def test_a_stream_that_cannot_be_drawn_is_refused():
    for presence, names in ((np.ones((2, 3), int), ["a"]), (np.zeros((1, 3), int), ["a"])):
        with pytest.raises(RecordError, match="cannot draw"):
            stream_from_counts(presence, names)


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
    figure = accuracy_curves(RUNS)
    save(figure, path, title="toy")
    assert is_a_picture(path)
    task, class_ = figure.panels
    curves = {series.label: series for series in task.series}
    assert curves["deepccg"].line == ((10, 52), (20, 61), (30, pytest.approx(74)))
    assert curves["packnet"].line == ((10, 30), (20, 20), (30, 10))
    assert [series.label for series in class_.series] == ["deepccg"]  # the other needs a task
    assert curves["deepccg"].band[-1] == (pytest.approx(70), pytest.approx(78))

    axes = draw(figure).axes[0]
    corners = axes.collections[0].get_paths()[0].vertices
    at_end = corners[corners[:, 0] == 30][:, 1]
    assert (at_end.min(), at_end.max()) == (pytest.approx(70), pytest.approx(78))
    names = {text.get_text() for text in axes.texts}
    assert names == {"deepccg  74.0", "packnet  10.0"}


def test_only_moments_common_to_all_seeds_are_averaged():
    seeds = [run([50, 60, 70, 80], [1] * 4, every=10), run([10, 30], [1] * 2, every=20)]
    curve = accuracy_over_time(seeds, "task")
    assert {seen: at.mean for seen, at in curve.items()} == {20: 0.35, 40: pytest.approx(0.55)}
    assert accuracy_over_time(seeds[:1], "task")[40].mean == average_accuracy(seeds[0], "task")
    assert accuracy_over_time(RUNS["packnet"], "class") == {}


def test_long_curves_are_thinned_and_keep_their_end():
    (panel,) = accuracy_curves({"er": [run([50] * 999 + [70], [1] * 1000)]}, modes=["task"]).panels
    (series,) = panel.series
    assert len(series.line) == 200
    assert series.line[-1] == (10_000, pytest.approx(70))
    assert not series.points


@pytest.mark.parametrize(("largest", "log"), [(3.0, False), (300.0, True)])
def test_a_loss_that_is_a_sum_does_not_flatten_the_others(largest, log):
    runs = {
        "er": [[Training(10, 1.0), Training(20, 0.5)]],
        "sum": [[Training(10, largest), Training(20, largest / 2)]],
    }
    (panel,) = loss_curves(runs, series_styles((name, name) for name in runs)).panels
    assert panel.y.log == log
    page = OnPage(panel)
    assert page.line(page.groups[0])[-1] == pytest.approx((20, 0.5), rel=0.05)
    assert panel.y.low <= 0.5 < largest <= panel.y.high


def test_nothing_to_show_is_said():
    figure = accuracy_curves({"packnet": RUNS["packnet"]})
    assert [panel.title for panel in figure.panels] == ["Task-incremental accuracy over time"]
    assert "No method here predicts without a task." in figure.caption
    assert ("mean over seeds" in figure.caption) == (len(RUNS["packnet"]) > 1)
    one = accuracy_curves({"er": [run([50, 60], [40, 50])]})
    assert one.caption == "On the classes seen so far."
    figure = accuracy_curves({"er": [run([50], [40])]})
    (only,) = figure.panels
    assert only.empty
    assert "no line over time" in figure.caption


def test_a_comparison_shows_both_numbers(tmp_path):
    path = tmp_path / "comparison.png"
    figure = comparison_dots(
        {
            "deepccg": (Estimate(0.70, 0.02, 3), Estimate(0.69, 0.01, 3)),
            "er": (Estimate(0.65, None, 1), None),
            "packnet": (None, Estimate(0.5, 0.03, 3)),
        }
    )
    save(figure, path, title="toy")
    assert is_a_picture(path)
    axes = draw(figure).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["deepccg", "er", "packnet"]
    drawn = [(*line.get_xydata()[0], line.get_markerfacecolor()) for line in axes.lines]
    rows = [(round(y), x, face == "white") for x, y, face in drawn]
    assert rows == [(0, 70.0, False), (0, 69.0, True), (1, 65.0, False), (2, 50.0, True)]
    bars = [np.ptp(each.get_segments()[0][:, 0]) for each in axes.collections]
    assert bars == pytest.approx([4, 2, 0, 6])
    assert {text.get_text() for text in axes.texts} == {"70.0", "69.0", "65.0", "50.0"}
    assert "Hollow: the paper." in figure.caption


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
        "import tempfile, pathlib; from deepccg.report.figures import comparison_dots, save;"
        "save(comparison_dots({}), pathlib.Path(tempfile.mkdtemp()) / 'a.png');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
