"""Tables show the right numbers, and say what they were measured on."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from deepccg.records import ClassScore, Estimate, Evaluation, TaskScore
from deepccg.report import Row, Run, StreamTask, percent, stream_table
from deepccg.report.run_results import summary_json
from deepccg.report.tables import summary_table


def scored(correct: int, images: int = 10, of_images: int = 10) -> Evaluation:
    tasks = (TaskScore(0, (4,), images, correct, 3),)
    classes = (ClassScore(4, images, 3, correct),)
    return Evaluation(1, 10, 0, True, images, of_images, tasks, classes)


def run(correct: int, seed: int = 0, joint: str | None = None, **more: int) -> Run:
    config = {"seed": seed, "evaluation": {}, "stream": {"joint": joint}, "method": {"lr": 0.1}}
    return Run(Path(f"runs/{seed}"), config, (scored(correct, **more),), audit={"passed": True})


def row(label, task, class_=None, forgetting=None, n=3, images=2000, of_images=10000, joint=None):
    """A row with given numbers, whatever its run scored."""

    def of(mean):
        return None if mean is None else Estimate(mean, 0.0123 if n > 1 else None, n)

    made = Row(label, label, label, {0: run(5, joint=joint, images=images, of_images=of_images)})
    aggregates = {"task_accuracy": of(task), "task_forgetting": of(forgetting)}
    vars(made)["aggregates"] = aggregates | {"class_accuracy": of(class_)}  # as if computed
    return made


ROWS = [
    row("deepccg", 0.69294, 0.2427, forgetting=-0.0001),
    row("er", 0.6671, 0.1629, forgetting=0.04),
    row("packnet", 0.69251, joint="tasks"),
]


def rendered(table, width=120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    console.print(table.terminal())
    return console.file.getvalue()


def words(table) -> str:
    """What a table says, however it is styled and wrapped."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", rendered(table)).split())


def cells(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_markdown_has_every_number_and_marks_the_best():
    header, alignment, *body = cells(summary_table(ROWS, "").markdown())
    accuracy, forgetting = "-incremental acc.", "forgetting"
    assert header == [
        "Method",
        f"Task{accuracy}",
        forgetting,
        f"Class{accuracy}",
        forgetting,
        "Note",
    ]
    assert alignment == ["---", "---:", "---:", "---:", "---:", "---"]
    assert body == [
        ["deepccg", "**69.3 ± 1.2**", "0.0 ± 1.2", "**24.3 ± 1.2**", "-", ""],
        ["er", "66.7 ± 1.2", "4.0 ± 1.2", "16.3 ± 1.2", "-", ""],
        ["packnet", "**69.3 ± 1.2**", "-", "-", "-", "offline"],
    ]


def test_the_terminal_shows_the_same():
    table = summary_table(ROWS, "cifar10")
    text = rendered(table)
    plain = words(table)
    assert plain.startswith("cifar10")
    assert "deepccg 69.3 ± 1.2 0.0 ± 1.2 24.3 ± 1.2 - er 66.7 ± 1.2 4.0 ± 1.2 16.3 ± 1.2 -" in plain
    assert "packnet 69.3 ± 1.2 - - - offline" in plain
    assert "scored on 2,000 of 10,000 test images" in plain
    bold = re.findall(r"\x1b\[1m([^\x1b]*±[^\x1b]*)\x1b", text)
    assert [b.strip() for b in bold] == ["69.3 ± 1.2", "24.3 ± 1.2", "69.3 ± 1.2"]


def test_a_table_fits_an_ordinary_terminal():
    lines = rendered(summary_table(ROWS, ""), width=80).splitlines()
    assert sum("±" in line for line in lines if "over" not in line) == len(ROWS)


def test_labels_are_text_not_markup():
    text = rendered(summary_table([row("[red]er[/red]", 0.5)], ""))
    assert "[red]er[/red]" in text


def test_the_caption_says_what_was_measured():
    text = summary_table(ROWS, "").markdown()
    assert "mean ± standard error over 3 seeds; scored on 2,000 of 10,000 test images" in text
    assert "higher is better" in text

    one = summary_table([row("er", 0.5, n=1, images=500, of_images=500)], "").markdown()
    assert "one seed; scored on all 500 test images" in one
    assert " ± " not in one
    assert "**" not in one  # the best of one is no news
    mixed = summary_table([row("er", 0.5, n=2), row("sgd", 0.5, n=5)], "").markdown()
    assert "over 2 to 5 seeds" in mixed


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Estimate(0.12345, None, 1), "12.3"),
        (Estimate(1.0, 0.0, 2), "100.0 ± 0.0"),
        (Estimate(-0.0004, 0.0006, 2), "0.0 ± 0.1"),
        (Estimate(-0.02, None, 1), "-2.0"),
        (None, "-"),
    ],
)
def test_percent(value, shown):
    assert percent(value) == shown


def test_a_row_from_runs_holds_mean_and_seeds():
    result = Row("er-1", "er", "ER", {0: run(6, 0), 1: run(8, 1)})
    assert result.aggregates["task_accuracy"].mean == pytest.approx(0.7)
    assert result.aggregates["task_accuracy"].standard_error == pytest.approx(0.1)
    assert result.aggregates["task_forgetting"] is None

    data = summary_json([result])
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["images"], data["of_images"], data["source"]) == (10, 10, "test images")
    (entry,) = data["results"]
    assert (entry["label"], entry["note"], entry["held"]) == ("ER", "", None)
    assert entry["metrics"]["task_accuracy"]["n"] == 2
    assert entry["metrics"]["task_forgetting"] is None
    assert {seed: own["task_accuracy"] for seed, own in entry["seeds"].items()} == {
        "0": 0.6,
        "1": 0.8,
    }
    assert "seed" not in entry["config"]
    assert entry["audits"] == {"0": {"passed": True}, "1": {"passed": True}}
    assert entry["directories"] == {"0": "runs/0", "1": "runs/1"}


def tasks(count: int) -> list[StreamTask]:
    return [StreamTask((f"c{i}", f"c{i + 1}"), 500) for i in range(count)]


def test_a_short_stream_is_shown_whole():
    text = words(stream_table(tasks(9), title="digits"))
    assert all(f"c{i}, c{i + 1}" in text for i in range(9))
    assert "9 tasks, 10 classes, 4,500 examples" in text
    assert "more" not in text


@pytest.mark.parametrize("most", [4, 7, 16])
def test_a_long_stream_is_shown_at_both_ends(most):
    text = words(stream_table(tasks(96), max_tasks=most))
    shown = [i for i in range(96) if f"{i} c{i}, c{i + 1} 500" in text]
    assert len(shown) == most
    assert {0, 95} <= set(shown)
    assert f"{96 - most} more tasks" in text
    assert "96 tasks, 97 classes, 48,000 examples" in text


def test_the_best_is_named_among_rows_of_the_same_seeds():
    made = [
        Row(name, name, name, {seed: run(correct, seed) for seed in seeds})
        for name, correct, seeds in (("a", 5, (0, 1)), ("b", 6, (0, 1)), ("c", 9, (0,)))
    ]
    *_, a, b, c = cells(summary_table(made, "").markdown())
    assert ("**" in a[1], "**" in b[1], "**" in c[1]) == (False, True, False)
