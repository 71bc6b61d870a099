"""The tables of docs/performance.md, from bench.json."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def told(values: Sequence[float], digits: int = 2) -> str:
    """Median and quartiles."""
    middle, low, high = values
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def steps_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    header = (
        "method", "CPU ms a step", "times as fast as its reference", "cost in ER steps",
        "forwards", "images", "of them with gradient",
    )  # fmt: skip
    return table(
        header,
        [
            (
                name,
                told(row["cpu ms"], 0),
                told(row["times the reference"])
                + (
                    f"; one by one {told(row['times one by one'])}"
                    if "times one by one" in row
                    else ""
                ),
                told(row["cost in ER steps"]),
                f"{row['passes']:.0f}",
                f"{row['images']:.0f}",
                f"{row['images with gradient']:.0f}",
            )
            for name, row in rows.items()
        ],
    )


def size_table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = ("", "classes", "stored of each", "images a step", "CPU ms a step", "cost in ER steps")
    return table(
        header,
        [
            (
                row["mode"],
                f"{row['classes']:,}",
                str(row["per class"]),
                f"{row['images']:,.0f}",
                told(row["cpu ms"], 0),
                told(row["cost in ER steps"]),
            )
            for row in rows
        ],
    )


def plain_table(header: Sequence[str], values: Mapping[str, Any]) -> str:
    rows = [
        (name, told(value, 3) if isinstance(value, list) else f"{value:,.2f}")
        for name, value in values.items()
    ]
    return table(header, rows)


def sections(found: Mapping[str, Any]) -> dict[str, str]:
    """Each table by the name of its place in the document."""
    made: dict[str, str] = {}
    for key, value in found.items():
        if key.startswith("steps, "):
            made[key] = steps_table(value)
        elif key == "cost by size":
            made[key] = size_table(value)
        elif key == "forward ms per image":
            made[key] = plain_table(("network", "CPU ms per image"), value)
        elif key == "evaluation in forwards":
            made[key] = plain_table(("method", "evaluation / bare forward"), value)
        elif key.startswith("peak MiB"):
            made[key] = plain_table(("", "MiB"), value)
        elif key == "two processes over one":
            made[key] = f"Two processes took {value:.2f} times as long as one."
    return made


def write_tables(found: Mapping[str, Any], document: Path) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- / -->`` for each table."""
    text = document.read_text(encoding="utf-8")
    for name, made in sections(found).items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- / -->)", re.DOTALL)
        text = place.sub(lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text)
    document.write_text(text, encoding="utf-8")
