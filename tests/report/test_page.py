"""The page as text: hostile names, many runs, what is said where something is missing."""

import base64
import io
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg import report
from deepccg.records import find_runs
from deepccg.report import RowDetails, Stored, export_report, group_runs, read_run, report_page
from deepccg.report.catalogue import mean_matrix
from deepccg.report.figures import DARK, LIGHT, series_styles
from deepccg.report.figures.matplotlib import draw
from deepccg.report.figures.memory_images import fair_share, memory_images, side_by_side, strips
from deepccg.report.figures.stream_bars import task_spans
from deepccg.report.tables import cost_table

EVIL = "<script>alert(1)</script>\"'&"


def details_of(comparisons, stored="no checkpoint"):
    return {
        row.key: RowDetails(f"run {row.method}", dict.fromkeys(row.runs, "line"), stored)
        for comparison in comparisons
        for row in comparison.rows
    }


@pytest.fixture(scope="module")
def found(runs: Path):
    return [run for each in find_runs([runs]) if (run := read_run(each))]


class Balanced(HTMLParser):
    """Refuses tags that are not closed in order."""

    VOID = frozenset(
        {"meta", "link", "img", "br", "input", "image", "path", "line", "rect", "polygon"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    return parser


def test_the_page_is_one_whole_document(found):
    comparisons = group_runs(found)
    page = report_page(comparisons, details_of(comparisons))
    assert page.lstrip().startswith("<!doctype html>")
    parser = parsed(page)
    assert parser.scripts == 1
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(a.startswith(("data:", "#")) for a in addresses)
    assert "no checkpoint" in page
    assert page == report_page(comparisons, details_of(comparisons))  # no time, no chance


def test_names_are_text_and_nothing_else(found):
    run = found[0]
    config = {
        **run.config,
        "dataset": EVIL,
        "preset": EVIL,
        "method": {"name": EVIL, "field": EVIL},
        "stream": {**run.config["stream"], "kind": EVIL},
    }
    other = {**config, "method": {"name": EVIL, "field": EVIL + "2"}}
    evil = [
        replace(run, config=each, path=Path(EVIL), environment={"processor": EVIL, "commit": EVIL})
        for each in (config, other)
    ]
    comparisons = group_runs(evil)
    stored = Stored(np.zeros((1, 1, 8, 8), np.uint8), np.zeros(1, np.int64), (0,), (EVIL,) * 10)
    details = {
        row.key: RowDetails(EVIL, {0: EVIL}, stored)
        for comparison in comparisons
        for row in comparison.rows
    }
    page = report_page(comparisons, details, title=EVIL, left_out=[EVIL])
    assert parsed(page).scripts == 1
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10


def test_hundreds_of_runs_stay_a_page_of_moderate_size(found):
    """200 seeds in each of 17 methods: rows, lines and audits do not grow with them."""
    runs = [
        replace(run, config={**run.config, "seed": seed, "method": {"name": f"m{place}"}})
        for place in range(17)
        for run in found[:1]
        for seed in range(200)
    ]
    comparisons = group_runs(runs)
    page = report_page(comparisons, details_of(comparisons))
    assert page.count("0-199") >= 17
    assert len(page) < 600_000


def test_a_long_stream_is_drawn_small(found):
    """96 tasks: the heat map is a picture, not nine thousand shapes."""
    run = found[0]
    final = run.evaluations[-1]
    score = final.tasks[0]
    evaluations = tuple(
        replace(
            final,
            step=10 * (t + 1),
            examples=100 * (t + 1),
            task=t,
            final=t == 95,
            tasks=tuple(replace(score, task=i) for i in range(t + 1)),
        )
        for t in range(96)
    )
    comparisons = group_runs([replace(run, evaluations=evaluations)])
    page = report_page(comparisons, details_of(comparisons))
    assert len(page) < 120_000
    assert 'href="data:image/png;base64,' in page


def test_what_is_missing_is_said(found):
    once = [
        replace(run, evaluations=run.evaluations[-1:], audit=None, seconds=None) for run in found
    ]
    comparisons = group_runs(once)
    page = report_page(comparisons, details_of(comparisons))
    for text in (
        "scored at the end only",
        "recorded neither times nor an audit",
        "no line over time",
        "no audit in",
    ):
        assert text in page
    assert "What the memory holds" not in report_page(
        comparisons, details_of(comparisons), images_per_class=0
    )


def test_a_broken_protocol_shows(found):
    broken = replace(found[0], audit={**found[0].audit, "passed": False})
    comparisons = group_runs([broken])
    assert "protocol broken" in report_page(comparisons, details_of(comparisons))


def test_the_heat_map_is_the_mean_over_seeds(found):
    row = next(row for row in group_runs(found)[0].rows if row.method == "deepccg")
    matrix = mean_matrix(row, "task")
    for t, i in ((0, 0), (4, 0), (4, 4)):
        rates = [
            score.task_correct / score.images
            for run in row.runs.values()
            for evaluation in run.evaluations
            if evaluation.task == t
            for score in evaluation.tasks
            if score.task == i
        ]
        assert len(rates) == 2
        assert matrix[t, i] == pytest.approx(np.mean(rates))
    assert np.isnan(matrix[0, 1])


def test_tasks_follow_each_other_in_the_stream(found):
    row = next(row for row in group_runs(found)[0].rows if row.method == "er")
    evaluations = row.first.evaluations
    spans = task_spans(evaluations)
    assert [end for _, end, _ in spans] == [e.examples for e in evaluations]
    only_end = task_spans(evaluations[-1:])
    assert [labels for _, _, labels in only_end] == [labels for _, _, labels in spans]
    lengths = [end - begin for begin, end, _ in only_end]
    assert sum(lengths) == pytest.approx(evaluations[-1].examples)
    assert np.ptp(lengths) < 1e-6


def test_strips_show_the_stored_images():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (7, 1, 8, 8), dtype=np.uint8)
    stored = Stored(images, np.array([3, 3, 1, 3, 1, 3, 3]), (3, 1, 2), tuple("abcd"))
    three, one, two = strips(stored, per_class=4)
    assert [(s.name, s.stored, s.shown) for s in (three, one, two)] == [
        ("d", 5, 4), ("b", 2, 2), ("c", 0, 0),
    ]  # fmt: skip
    assert two.source == ""
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(one.source.partition(",")[2]))))
    assert np.array_equal(picture, np.concatenate([images[2, 0], images[4, 0]], axis=1))


def test_many_memories_share_the_page():
    large = Stored(np.zeros((1, 3, 84, 84), np.uint8), np.zeros(1, np.int64), tuple(range(100)), ())
    assert fair_share([large] * 10, 10, 2_500_000) == 1
    assert fair_share([], 10, 100) == 10
    assert side_by_side(large.images).shape == (42, 42, 3)


def test_styles_are_stable_and_differ():
    labels = [("DeepCCG", "deepccg"), ("ER", "er"), ("ESMER", "esmer"), ("mine", "my:Own")]
    found = series_styles(labels)
    assert found["DeepCCG"] == series_styles(labels[:1])["DeepCCG"]
    assert len({(style.slot, style.variant) for style in found.values()}) == len(labels)
    assert len(LIGHT) == len(DARK)


@pytest.mark.parametrize(("colours", "paper"), [(LIGHT, 1.0), (DARK, 0.012)])
def test_lines_stand_out_from_the_paper(colours, paper):
    for colour in colours:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        light = float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
        high, low = max(light, paper), min(light, paper)
        assert (high + 0.05) / (low + 0.05) >= 3


def test_seconds_are_shown_and_not_compared_across_machines(found):
    disjoint = [run for run in found if run.path.parent.name in ("er", "sgd")]
    timed = [
        replace(
            run,
            seconds=0.25 * (1 + place),
            environment={"processor": f"P{run.config['method']['name']}"},
        )
        for place, run in enumerate(disjoint)
    ]
    (comparison,) = group_runs(timed)
    cost = cost_table(comparison)
    assert cost is not None
    assert tuple(column.text for column in cost.columns[:2]) == (
        "Seconds learning",
        "Milliseconds per batch",
    )
    for row, line in zip(comparison.rows, cost.rows, strict=True):
        seconds = np.mean([run.seconds for run in row.runs.values()])
        assert line.cells[0].value == pytest.approx(seconds)
        assert line.cells[1].value == pytest.approx(1000 * seconds / 20)  # batches
    assert "on 2 kinds of machine and do not compare" in cost.caption
    page = report_page([comparison], details_of([comparison]))
    assert "Accuracy against time" in page
    assert "Accuracy against memory" not in page  # only one of them has one
    same = [replace(run, environment={"processor": "P"}) for run in timed]
    cost = cost_table(group_runs(same)[0])
    assert cost is not None
    assert "compare" not in cost.caption


def test_costs_that_no_run_recorded_have_no_column(found):
    untimed = [replace(run, seconds=None) for run in found]
    comparison = group_runs(untimed)[0]
    cost = cost_table(comparison)
    assert [column.text for column in cost.columns] == [
        "Forward passes per example",
        "Backward passes per example",
        "Stored examples",
        "Stored bytes",
    ]
    for row, line in zip(comparison.rows, cost.rows, strict=True):
        stored = np.mean([run.audit["memory"]["examples"] for run in row.runs.values()])
        assert (len(line.cells), line.cells[2].value) == (4, stored)
    assert cost_table(group_runs([replace(run, audit=None) for run in untimed])[0]) is None


def test_what_costs_nothing_is_named(found):
    disjoint = [run for run in found if run.path.parent.name in ("deepccg", "er", "sgd")]
    larger = {"memory": {"bytes": {"examples": 10**6}}}
    runs = [replace(r, audit=larger) if r.path.parent.name == "er" else r for r in disjoint]
    comparisons = group_runs(runs)
    page = report_page(comparisons, details_of(comparisons))
    assert page.count("<h4>Accuracy against memory</h4>") == 1
    assert "Not shown, at no cost: SGD." in page


@pytest.mark.slow
def test_every_figure_is_exported(found, tmp_path):
    comparisons = group_runs(found)[:1]
    images = np.arange(3 * 64, dtype=np.uint8).reshape(3, 1, 8, 8)
    stored = Stored(images, np.array([1, 0, 1]), (1, 0, 2), tuple("abc"))
    written = export_report(comparisons, details_of(comparisons, stored), tmp_path)
    assert sorted(written) == sorted(tmp_path.iterdir())
    kinds = {
        suffix: [p for p in written if p.suffix == suffix]
        for suffix in (".md", ".tex", ".csv", ".png", ".pdf")
    }
    assert len(kinds[".md"]) == len(kinds[".tex"]) == len(kinds[".csv"]) == 5
    assert [p.stem for p in kinds[".png"]] == [p.stem for p in kinds[".pdf"]]
    names = {p.stem.removeprefix(comparisons[0].key) for p in kinds[".png"]}
    memories = {f"-memory-{row.key}" for row in comparisons[0].rows}
    costs = {"-cost-passes", "-cost-seconds"}  # and bytes, of which those that store have the same
    others = {"-final", "-stream", "-accuracy", "-forgetting", "-shift", "-misalignment"}
    others |= {"-tasks", "-tasks-other", "-confusion"}
    assert names == others | costs | memories
    for path in kinds[".png"]:
        with Image.open(path) as picture:
            picture.verify()
    assert all(path.read_bytes().startswith(b"%PDF-") for path in kinds[".pdf"])
    table = (tmp_path / f"{comparisons[0].key}-results.md").read_text(encoding="utf-8")
    assert "| DeepCCG |" in table


def test_a_memory_is_drawn_class_by_class():
    """30 classes stand in two blocks; a pixel of the picture is a pixel of an image."""
    labels = np.array([*range(30), 29])  # two of the class that came first
    images = np.repeat(labels.astype(np.uint8), 64).reshape(31, 1, 8, 8)
    classes = tuple(range(29, -1, -1))
    stored = Stored(images, labels, classes, ())
    figure = draw(memory_images(stored, "Memory", per_class=3))
    shown = [axes.images[0].get_array() for axes in figure.axes]
    assert [picture.shape for picture in shown] == [(15 * 9, 2 * 8, 3)] * 2
    assert (shown[0][:8, :16] == 29).all()
    assert (shown[1][14 * 9 : 14 * 9 + 8, :8] == 0).all()
    assert (shown[0][8:, 8:] == 255).all()  # one image of each other class, and then paper
    assert figure.axes[1].get_yticklabels()[0].get_text() == "14"


@pytest.mark.parametrize(("old", "new"), [("About", "RowDetails"), ("grouped", "group_runs")])
def test_earlier_names_still_work(old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(report, old) is getattr(report, new)


def test_importing_the_report_stays_light():
    heavy = "{'matplotlib', 'jinja2', 'PIL', 'torch'}"
    code = f"import sys, deepccg.report; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
