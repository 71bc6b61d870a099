"""Methods beside each other: one number of each as dots, or its accuracy against its cost."""

from collections.abc import Mapping, Sequence

from deepccg.records import Estimate
from deepccg.report.figures import description as fig
from deepccg.report.figures.style import SeriesStyle
from deepccg.report.formatting import in_percent, percent

_ROW, _TALL_ROW = 22, 30  # pixels: of one number, and of two
_MARGIN = 1.3  # factor of room beside the cheapest and the dearest


def comparison_dots(
    numbers: Mapping[str, tuple[Estimate | None, Estimate | None]],
    styles: Mapping[str, SeriesStyle] | None = None,
    *,
    title: str = "Final accuracy",
    axis: str = "accuracy, %",
    caption: str = "",
) -> fig.Figure:
    """Describe one row for each method: our number and below it, hollow, the paper's.

    Both are fractions, ``None`` where missing. Styles are by label; default one colour for all.
    """
    styles = styles or dict.fromkeys(numbers, SeriesStyle(0))
    series = tuple(
        fig.Series(label, styles[label], points=_points(row, *pair))
        for row, (label, pair) in enumerate(numbers.items())
    )
    ends = [end for each in series for point in each.points for end in point.x_error or ()]
    papers = any(paper for _, paper in numbers.values())
    panel = fig.Panel(
        title=title,
        x=fig.rounded_axis(axis, ends or [0, 100], about=4),
        y=fig.category_axis(list(numbers)),
        series=series,
        alt="; ".join(f"{s.label} {', '.join(p.tooltip for p in s.points)}" for s in series),
        height=(_TALL_ROW if papers else _ROW) * len(numbers),
        left=146,
        right=52,
    )
    sentences = (caption, "Bars: one standard error.", "Hollow: the paper." if papers else "")
    return fig.Figure((panel,), " ".join(filter(None, sentences)))


def cost_scatter(
    points: Mapping[str, Sequence[tuple[Estimate, Estimate]]],
    styles: Mapping[str, SeriesStyle],
    *,
    title: str,
    axis: str,
    caption: str,
) -> fig.Figure:
    """Describe accuracy with its standard error against cost, on a logarithmic axis.

    ``points`` has for each label costs, above 0, and accuracies as fractions: one point, or several
    that a line joins in their order.
    """
    costs = [cost.mean for own in points.values() for cost, _ in own]
    bars = [fig.error_bar(accuracy) for own in points.values() for _, accuracy in own]
    series = tuple(
        fig.Series(
            label,
            styles[label],
            line=tuple((cost.mean, 100 * accuracy.mean) for cost, accuracy in own[1:] and own),
            points=tuple(
                fig.Point(cost.mean, 100 * accuracy.mean, y_error=fig.error_bar(accuracy))
                for cost, accuracy in own
            ),
            tooltip=f"{label}: "
            + ", then ".join(f"{_amount(cost.mean)} {axis}, {percent(a)} %" for cost, a in own),
        )
        for label, own in points.items()
    )
    panel = fig.Panel(
        title=title,
        x=fig.axis_between(axis, min(costs) / _MARGIN, max(costs) * _MARGIN, log=True),
        y=fig.rounded_axis("accuracy, %", [end for bar in bars for end in bar]),
        series=series,
        alt="; ".join(each.tooltip for each in series),
        names="points",
    )
    return fig.Figure((panel,), caption)


def _points(row: int, ours: Estimate | None, paper: Estimate | None) -> tuple[fig.Point, ...]:
    shift = 0.2 if paper else 0.0
    return tuple(
        fig.Point(
            100 * number.mean,
            row + side * shift,
            x_error=fig.error_bar(number),
            text=in_percent(number.mean),
            tooltip=source + percent(number),
            hollow=bool(source),
        )
        for number, side, source in ((ours, -1, ""), (paper, 1, "paper "))
        if number
    )


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
