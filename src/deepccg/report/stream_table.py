"""Which classes arrive when, as a table for the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text


class StreamTask(NamedTuple):
    """One task of a stream: the names of its classes and how many examples it has."""

    classes: tuple[str, ...]
    examples: int


def stream_table(
    tasks: Sequence[StreamTask], *, title: str | None = None, max_tasks: int = 16
) -> Table:
    """Tasks in order of arrival; the middle of a long stream is left out, and said to be.

    Args:
        tasks: What the stream is made of.
        title: A heading.
        max_tasks: How many tasks are shown at most.
    """
    total = sum(task.examples for task in tasks)
    distinct = len({name for task in tasks for name in task.classes})
    table = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        caption=f"{len(tasks):,} tasks, {distinct:,} classes, {total:,} examples, each seen once",
    )
    table.add_column("Task", justify="right", no_wrap=True)
    table.add_column("Classes")
    table.add_column("Examples", justify="right", no_wrap=True)
    head, tail = _shown(len(tasks), max_tasks)
    for place, task in enumerate(tasks):
        if head <= place < tail:
            if place == head:
                table.add_row("...", Text(f"{tail - head:,} more tasks", style="dim"), "...")
            continue
        table.add_row(str(place), Text(", ".join(task.classes)), f"{task.examples:,}")
    return table


def _shown(tasks: int, at_most: int) -> tuple[int, int]:
    """Tasks before the first and from the second number on are shown.

    >>> _shown(5, 16), _shown(96, 16)
    ((5, 5), (8, 88))
    """
    if tasks <= at_most:
        return tasks, tasks
    return at_most - at_most // 2, tasks - at_most // 2
