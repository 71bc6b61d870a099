"""Results as a table for the terminal, as Markdown, and as JSON: the same numbers three times."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from deepccg.records import Estimate, Evaluation, aggregate, summary
from deepccg.report.rounding import in_percent

DASH = "-"
# title, metric, whether its best value is set in bold
_COLUMNS = (
    ("Task-\nincremental\nacc.", "task_accuracy", True),
    ("\n\nforgetting", "task_forgetting", False),
    ("Class-\nincremental\nacc.", "class_accuracy", True),
    ("\n\nforgetting", "class_forgetting", False),
)


@dataclass(frozen=True)
class ResultRow:
    """One line of a result table.

    Args:
        label: What is compared, usually a method.
        aggregates: Each metric over the seeds; ``None`` where it is not defined.
        note: A remark on this line.
        seeds: Each seed's own metrics, for the JSON.
    """

    label: str
    aggregates: Mapping[str, Estimate | None]
    note: str = ""
    seeds: Mapping[int, Mapping[str, float | None]] = field(default_factory=dict)


def result_row(label: str, runs: Mapping[int, Sequence[Evaluation]], note: str = "") -> ResultRow:
    """The line of one method from the evaluations of its runs, by seed."""
    seeds = {seed: summary(evaluations) for seed, evaluations in runs.items()}
    return ResultRow(label, aggregate(list(seeds.values())), note, seeds)


def result_table(
    rows: Sequence[ResultRow],
    *,
    images: int,
    of_images: int,
    source: str = "test images",
    title: str | None = None,
) -> Table:
    """The results for the terminal.

    Args:
        rows: One for each method.
        images: Images that were scored.
        of_images: Images there are.
        source: What they are.
        title: A heading.
    """
    noted = any(row.note for row in rows)
    table = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        caption=caption(rows, images, of_images, source),
        caption_justify="left",
    )
    longest = max((len(row.label) for row in rows), default=0)
    table.add_column("\n\nMethod", overflow="fold", min_width=min(longest, 24))
    for header, _, _ in _COLUMNS:
        table.add_column(header, justify="right", no_wrap=True)
    if noted:
        table.add_column("\n\nNote")
    for row in rows:
        numbers = [Text(text, "bold" if bold else "") for text, bold in _numbers(row, rows)]
        table.add_row(Text(row.label), *numbers, *[Text(row.note)] * noted)
    return table


def result_markdown(
    rows: Sequence[ResultRow], *, images: int, of_images: int, source: str = "test images"
) -> str:
    """The results as a Markdown table, its caption below."""
    noted = any(row.note for row in rows)
    titles = [header.replace("-\n", "-").replace("\n", " ").strip() for header, _, _ in _COLUMNS]
    lines = [
        ["Method", *titles, *["Note"] * noted],
        ["---", *["---:"] * len(titles), *["---"] * noted],
    ]
    for row in rows:
        numbers = [f"**{text}**" if bold else text for text, bold in _numbers(row, rows)]
        lines.append([escape(row.label), *numbers, *[escape(row.note)] * noted])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{caption(rows, images, of_images, source)}\n"


def summary_json(
    rows: Sequence[ResultRow], *, images: int, of_images: int, source: str = "test images"
) -> dict[str, Any]:
    """Every number as plain JSON values: fractions, ``None`` where a metric is not defined."""
    return {
        "images": images,
        "of_images": of_images,
        "source": source,
        "results": [
            {
                "label": row.label,
                "note": row.note,
                "metrics": {
                    name: None if value is None else asdict(value)
                    for name, value in row.aggregates.items()
                },
                "seeds": {str(seed): dict(values) for seed, values in row.seeds.items()},
            }
            for row in rows
        ],
    }


def caption(
    rows: Sequence[ResultRow], images: int, of_images: int, source: str = "test images"
) -> str:
    """What a reader must know to read the numbers."""
    counts = sorted({value.n for row in rows for value in row.aggregates.values() if value})
    seeds = " to ".join(str(n) for n in dict.fromkeys((*counts[:1], *counts[-1:])))
    many = counts[-1:] > [1]
    what = f"mean ± standard error over {seeds} seeds" if many else "one seed"
    which = f"all {images:,}" if images == of_images else f"{images:,} of {of_images:,}"
    return (
        f"Percent, {what}; scored on {which} {source}. "
        "Accuracy: higher is better; forgetting: lower is better."
    )


def percent(value: Estimate | None) -> str:
    """An estimate in percent with one decimal.

    >>> percent(Estimate(mean=0.6929, standard_error=0.0089, n=3))
    '69.3 ± 0.9'
    >>> percent(Estimate(mean=0.25, standard_error=None, n=1)), percent(None)
    ('25.0', '-')
    """
    if value is None:
        return DASH
    error = "" if value.standard_error is None else f" ± {in_percent(value.standard_error)}"
    return in_percent(value.mean) + error


def _numbers(row: ResultRow, rows: Sequence[ResultRow]) -> list[tuple[str, bool]]:
    """The numbers of one row and whether each is the best of its column, as far as it is shown."""
    numbers = []
    for _, metric, mark_best in _COLUMNS:
        value = row.aggregates.get(metric)
        means = [other.mean for each in rows if (other := each.aggregates.get(metric))]
        best = value is not None and in_percent(value.mean) == in_percent(max(means))
        numbers.append((percent(value), mark_best and best and len(means) > 1))
    return numbers


def escape(text: str) -> str:
    """Text that stands in a cell of a Markdown table as it is."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return plain.replace("<", "&lt;")
