"""Accuracy against what it cost."""

from collections.abc import Mapping

from deepccg.records import Estimate
from deepccg.report.figures import description as fig
from deepccg.report.figures.style import SeriesStyle
from deepccg.report.formatting import percent

_MARGIN = 1.3  # factor of room beside the cheapest and the dearest


def cost_scatter(
    points: Mapping[str, tuple[Estimate, Estimate]],
    styles: Mapping[str, SeriesStyle],
    *,
    title: str,
    axis: str,
    caption: str = "",
) -> fig.Figure:
    """Describe accuracy with its standard error against cost, on a logarithmic axis.

    Args:
        points: For each label its cost, above 0, and its accuracy as a fraction; at least one.
        styles: By label.
        title: What is compared.
        axis: The cost and its unit.
        caption: What a reader must know.
    """
    costs = [cost.mean for cost, _ in points.values()]
    bars = {label: fig.error_bar(accuracy) for label, (_, accuracy) in points.items()}
    series = tuple(
        fig.Series(
            label,
            styles[label],
            points=(fig.Point(cost.mean, 100 * accuracy.mean, y_error=bars[label]),),
            tooltip=f"{label}: {_amount(cost.mean)} {axis}, {percent(accuracy)} %",
        )
        for label, (cost, accuracy) in points.items()
    )
    panel = fig.Panel(
        title=title,
        x=fig.axis_between(axis, min(costs) / _MARGIN, max(costs) * _MARGIN, log=True),
        y=fig.rounded_axis("accuracy, %", [end for bar in bars.values() for end in bar]),
        series=series,
        alt="; ".join(each.tooltip for each in series),
        names="points",
    )
    return fig.Figure((panel,), caption)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
