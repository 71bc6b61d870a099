"""The tables of docs/performance.md, from bench.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_sections import fill_sections

ONE_THREAD, SIZE, GROWTH = "steps, 1 threads", "cost by size", "sampled, 1000 classes over 100"
CHEAP = "sampled, through"  # what the presets of data sets with 100 classes have
NEEDED_FOR_TARGETS = (
    ONE_THREAD,
    SIZE,
    GROWTH,
    "peak MiB, 1000 classes of 30",
    "two processes over one",
)


def with_quartiles(values: Sequence[float], digits: int = 2) -> str:
    """Median and quartiles."""
    middle, low, high = values
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def percent(values: Sequence[float]) -> str:
    """Median and quartiles of a share."""
    return f"{with_quartiles([100 * value for value in values], 0)} %"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def steps_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    header = (
        "method", "ms a step", "times as fast as its reference", "cost in ER steps",
        "share of the peak", "forwards", "images", "of them with gradient",
    )  # fmt: skip
    return table(header, [(name, *_steps_cells(row)) for name, row in rows.items()])


def _steps_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    one_by_one = row.get("times one by one")
    share = row.get("share of peak")  # not in older measurements
    return (
        with_quartiles(row["ms"], 0),
        with_quartiles(row["times the reference"])
        + (f"; one by one {with_quartiles(one_by_one)}" if one_by_one else ""),
        with_quartiles(row["cost in ER steps"]),
        percent(share) if share else "-",
        f"{row['passes']:.0f}",
        f"{row['images']:.0f}",
        f"{row['images with gradient']:.0f}",
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
                with_quartiles(row["cpu ms"], 0),
                with_quartiles(row["cost in ER steps"]),
            )
            for row in rows
        ],
    )


def plain_table(header: Sequence[str], values: Mapping[str, Any]) -> str:
    rows = [
        (name, with_quartiles(value, 3) if isinstance(value, list) else f"{value:,.2f}")
        for name, value in values.items()
    ]
    return table(header, rows)


def sections(found: Mapping[str, Any]) -> dict[str, str]:
    """Each table by the name of its section."""
    made: dict[str, str] = {}
    for key, value in found.items():
        if key.startswith("steps, "):
            made[key] = steps_table(value)
        elif key == SIZE:
            made[key] = size_table(value)
        elif key == "forward ms per image":
            made[key] = plain_table(("network", "CPU ms per image"), value)
        elif key == "evaluation in forwards":
            made[key] = plain_table(("method", "evaluation / bare forward"), value)
        elif key.startswith("peak MiB"):
            made[key] = plain_table(("", "MiB"), value)
        elif key == GROWTH:
            made[key] = f"With 1,000 classes {with_quartiles(value)} times as long as with 100."
        elif key == "two processes over one":
            made[key] = f"Two processes took {value:.2f} times as long as one."
    if all(part in found for part in NEEDED_FOR_TARGETS):
        made["targets"] = targets_table(found)
    return made


def targets_table(found: Mapping[str, Any]) -> str:
    """Targets and what was measured; needs all parts."""
    steps = {name: row["times the reference"][0] for name, row in found[ONE_THREAD].items()}
    slow = [f"{name} {ratio:.2f}" for name, ratio in steps.items() if ratio < 1.2]
    size = {(row["mode"], row["classes"], row["per class"]): row for row in found[SIZE]}

    def in_er_steps(mode: str, classes: int = 100, stored: int = 10) -> float:
        return size[f"DeepCCG, {mode}", classes, stored]["cost in ER steps"][0]

    growth = found[GROWTH][0]
    one_by_one = {n: found[ONE_THREAD][n]["times one by one"][0] for n in ("gss", "ewc")}
    one_by_one_text = ", ".join(f"{name} {ratio:.2f}" for name, ratio in one_by_one.items())
    exact = found[ONE_THREAD]["deepccg"]["cost in ER steps"][0]
    most = max(found["peak MiB, 1000 classes of 30"].values()) / 1024
    pair = found["two processes over one"]
    rows = [
        ("every method 1.2 times as fast as its plain reference", not slow,
         f"{len(steps) - len(slow)} of {len(steps)}" + f"; not {', '.join(slow)}" * bool(slow)),
        ("ER 1.6 times", steps["er"] >= 1.6,
         with_quartiles(found[ONE_THREAD]["er"]["times the reference"])),
        ("GSS and EWC 3 times as fast as one by one", min(one_by_one.values()) >= 3,
         one_by_one_text),
        ("DeepCCG exact at most 8 ER steps", exact <= 8, f"{exact:.1f}"),
        ("DeepCCG with gradients through the means at most 3", in_er_steps(CHEAP) <= 3,
         f"{in_er_steps(CHEAP):.1f}"),
        ("the same with 30 of each stored, at most 4", in_er_steps(CHEAP, stored=30) <= 4,
         f"{in_er_steps(CHEAP, stored=30):.1f}"),
        ("the same with 1,000 classes, at most 1.25 times as with 100", growth <= 1.25,
         with_quartiles(found[GROWTH])),
        ("at most 1.5 GiB with 1,000 classes of 30", most <= 1.5, f"{most:.2f} GiB"),
        ("two processes at most 1.15 times as long as one", pair <= 1.15, f"{pair:.2f}"),
    ]  # fmt: skip
    header = ("target (one thread, 100 classes, 10 of each stored)", "reached", "measured")
    return table(
        header, [(what, "yes" if met else "**no**", measured) for what, met, measured in rows]
    )


def write_tables(found: Mapping[str, Any], document: Path) -> None:
    """Write each table into its section."""
    fill_sections(document, sections(found))
