"""The figure of representation shift."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from deepccg.records import Shift
from deepccg.report.figures import SeriesStyle, save, shift_scatter
from deepccg.report.figures.matplotlib import draw


def made(slope: float, seed: int, size: int = 200) -> list[Shift]:
    """Shifts whose accuracy changes by about ``slope`` per unit of distance."""
    generator = np.random.default_rng(seed)
    distances = generator.uniform(0.1, 1.0, size)
    changes = np.round(1000 * (slope * distances + generator.normal(0, 0.01, size))).astype(int)
    return [
        Shift(
            step=step,
            task=1,
            mode="task",
            images=1000,
            distance=float(distance),
            spread=2.0,
            correct_before=500,
            correct_after=500 + int(change),
            correct_stale=480,
        )
        for step, (distance, change) in enumerate(zip(distances, changes, strict=True), start=1)
    ]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def test_a_long_label_is_broken_and_its_slope_is_not() -> None:
    label = "DeepCCG (mean_gradient=False, posterior=exact, replay=20)"
    figure = draw(shift_scatter({label: made(-0.05, 1)}, {label: SeriesStyle(0)}))
    for axes in figure.axes:
        (text,) = axes.get_legend().get_texts()
        *_, last = text.get_text().split("\n")
        assert len(numbers(last)) >= 3
        figure.canvas.draw()
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_slopes_points_and_lines_are_those_of_the_records(tmp_path: Path) -> None:
    shifts = {"DeepCCG": made(-0.05, 1), "ER": made(-0.3, 2)}
    described = shift_scatter(shifts, {"DeepCCG": SeriesStyle(0), "ER": SeriesStyle(1, 1)})
    save(described, tmp_path / "shift.png", title="CIFAR-100")
    assert (tmp_path / "shift.png").read_bytes().startswith(b"\x89PNG")
    figure = draw(described)
    first, relative, misaligned = figure.axes
    texts = [text.get_text() for text in first.get_legend().get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["DeepCCG", "ER"]
    x = [shift.distance for shift in shifts["ER"]]
    fitted = stats.linregress(x, [100 * shift.accuracy_change for shift in shifts["ER"]])
    half = stats.t.ppf(0.975, len(x) - 2) * fitted.stderr
    low, high = fitted.slope - half, fitted.slope + half
    assert numbers(texts[1]) == pytest.approx([fitted.slope, low, high], abs=0.005)
    line, points = first.lines[3], first.lines[4]  # after the zero line and DeepCCG's two
    assert len(points.get_xdata()) == 20
    assert np.mean(points.get_xdata()) == pytest.approx(np.mean(x))
    rise = np.diff(line.get_ydata()) / np.diff(line.get_xdata())
    assert rise == pytest.approx(fitted.slope)
    doubled = relative.get_legend().get_texts()[1].get_text()
    assert numbers(doubled)[0] == pytest.approx(2 * fitted.slope, abs=0.05)  # the spread is 2
    assert misaligned.get_legend() is not None


def test_the_picture_is_the_same_bytes_again_and_can_be_a_pdf(tmp_path: Path) -> None:
    styles = {"ER": SeriesStyle(1), "SGD": SeriesStyle(6)}
    for name in ("one.pdf", "two.pdf"):
        save(shift_scatter({"ER": made(-0.1, 0, size=5), "SGD": []}, styles), tmp_path / name)
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "one.pdf").read_bytes() == (tmp_path / "two.pdf").read_bytes()
