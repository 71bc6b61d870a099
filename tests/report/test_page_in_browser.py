"""The report in a real browser: the numbers of the records, filters, keyboard, sizes, colours."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from deepccg.records import find_runs
from deepccg.report import RowDetails, group_runs, read_run, report_page

NUMBER_FOCUSABLE = """() => {
  const all = [...document.querySelectorAll(
    "a[href], button, input, summary, pre[tabindex], .scroll")];
  const visible = all.filter((element) => element.checkVisibility());
  visible.forEach((element, number) => { element.dataset.number = number; });
  return visible.length;
}"""
FOCUSED = """() => {
  const element = document.activeElement;
  return [element.dataset.number, getComputedStyle(element).outlineStyle];
}"""
VISIBLE_ROWS = """(rows) => rows.filter((row) => row.checkVisibility())
  .map((row) => row.querySelector("th").innerText.trim())"""
DRAWN_METHODS = """(lines) => lines.filter((line) => line.getBoundingClientRect().width > 0)
  .map((line) => line.dataset.method)"""
LEAD = "article:not(.off) table.lead"


@pytest.fixture(scope="module")
def page_file(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all runs, without what only the command line adds."""
    comparisons = group_runs(run for each in find_runs([runs]) if (run := read_run(each)))
    details = {
        row.key: RowDetails(
            f"deepccg run --method {row.method}", dict.fromkeys(row.runs, "kept"), "no"
        )
        for comparison in comparisons
        for row in comparison.rows
    }
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(comparisons, details, title="Digits"), encoding="utf-8")
    return path


def task_accuracy(directory: Path) -> float:
    """From the lines of the file, without the library."""
    lines = (directory / "records.jsonl").read_text(encoding="utf-8").splitlines()
    final = [r for r in map(json.loads, lines) if r["type"] == "evaluation" and r["final"]][-1]
    return 100 * float(np.mean([t["task_correct"] / t["images"] for t in final["tasks"]]))


def shown_rows(tab) -> list[str]:
    return tab.page.locator(f"{LEAD} tbody tr").evaluate_all(VISIBLE_ROWS)


def test_nothing_is_fetched_and_nothing_goes_wrong(page_file, open_page):
    tab = open_page(page_file)
    tab.page.wait_for_load_state("networkidle")
    outside = [url for url in tab.requests if not url.startswith(("file:", "data:"))]
    assert [url for url in tab.requests if url.startswith("file:")] == [page_file.as_uri()]
    assert (tab.problems, outside) == ([], [])
    policy = tab.page.locator("meta[http-equiv]").get_attribute("content")
    assert "default-src 'none'" in policy
    assert page_file.stat().st_size < 500_000


def test_tables_hold_the_numbers_of_the_records(runs, page_file, open_page):
    table = open_page(page_file).page.locator(LEAD).first  # disjoint, task-incremental
    for name, label in (("deepccg", "DeepCCG"), ("er", "ER"), ("sgd", "SGD")):
        row = table.locator("tbody tr").filter(has=open_row(table, label))
        values = [task_accuracy(runs / name / f"seed-{seed}") for seed in (0, 1)]
        error = np.std(values, ddof=1) / np.sqrt(2)
        assert row.locator("td").first.inner_text() == f"{np.mean(values):.1f} ± {error:.1f}"
        assert row.locator("td").last.inner_text() == "2"
    cells = table.locator("tbody tr td:nth-of-type(1)").all()
    means = [float(cell.inner_text().split()[0]) for cell in cells]
    bold = [cell.locator("strong").count() == 1 for cell in cells]
    assert bold == [mean == max(means) for mean in means]


def open_row(table, label: str):
    return table.page.locator("th", has_text=re.compile(rf"^{label}$"))


def test_filters_act_on_everything_and_stay_in_the_address(page_file, open_page):
    tab = open_page(page_file)
    before = shown_rows(tab)
    assert before.count("ER") == 3
    tab.page.get_by_role("button", name="DeepCCG", exact=True).click()
    assert shown_rows(tab) == ["DeepCCG"]
    assert "#/method=deepccg" in tab.page.url
    lines = tab.page.locator("article:not(.off) figure svg g.series")
    assert set(lines.evaluate_all(DRAWN_METHODS)) == {"deepccg"}
    dots = tab.page.locator("article:not(.off) svg[data-step]").first
    assert dots.get_attribute("viewBox").split()[3] == str(6 + 22 + 40)  # one row is left
    assert "1 of 3 settings" in tab.page.locator("#state").inner_text()

    tab.page.get_by_role("button", name="SGD", exact=True).click()
    again = open_page(page_file, tab.page.url.removeprefix(page_file.as_uri()))
    assert shown_rows(again) == shown_rows(tab) == ["DeepCCG", "SGD"]

    again.page.get_by_role("button", name="shifting window", exact=True).click()
    assert shown_rows(again) == []
    assert again.page.get_by_text("Nothing matches").is_visible()
    again.page.get_by_role("button", name="Show all").click()
    assert shown_rows(again) == before
    assert "#" not in again.page.url
    assert again.problems == []


def test_on_a_phone_filters_are_one_line_that_stays(page_file, open_page):
    tab = open_page(page_file, width=390)
    filters = tab.page.locator(".filters")
    chip = tab.page.get_by_role("button", name="DeepCCG", exact=True)
    for down in (0, 1500):
        tab.page.evaluate(f"scrollTo({{top: {down}, behavior: 'instant'}})")
        assert not chip.is_visible()
        box = filters.bounding_box()
        assert box["height"] < 60
        assert (box["y"] == 0) == (down > 0)
    fold = tab.page.get_by_role("button", name="Filters")
    fold.click()
    assert fold.get_attribute("aria-expanded") == "true"
    chip.click()
    assert filters.bounding_box()["height"] < 700  # of 800
    fold.click()
    assert not chip.is_visible()
    assert shown_rows(tab) == ["DeepCCG"]
    assert tab.page.locator("#state").inner_text() == "1 of 3 settings shown"
    tab.page.get_by_role("button", name="Show all").click()
    assert shown_rows(tab).count("ER") == 3
    assert tab.problems == []


@pytest.mark.parametrize(
    ("facet", "value", "left"),
    [("stream", "shifting window", 1), ("scenario", "class-incremental", 1)],
)
def test_each_facet_leaves_its_settings(page_file, open_page, facet, value, left):
    tab = open_page(page_file)
    tab.page.get_by_role("button", name=value, exact=True).click()
    assert tab.page.locator("article:not(.off)").count() == left
    kept = tab.page.locator("article:not(.off)").first
    assert value.replace(" ", "-").removesuffix("-incremental") == kept.get_attribute(
        f"data-{facet}"
    )
    headers = tab.page.locator(".overview thead th.number:not(.off)")
    assert headers.count() == left


def test_everything_is_reached_by_keyboard(page_file, open_page):
    page = open_page(page_file).page
    count = page.evaluate(NUMBER_FOCUSABLE)
    assert count > 20
    reached = []
    for _ in range(count):
        page.keyboard.press("Tab")
        number, ring = page.evaluate(FOCUSED)
        assert ring != "none"
        reached.append(int(number))
    assert reached == list(range(count))

    chip = page.get_by_role("button", name="ER", exact=True)
    chip.focus()
    page.keyboard.press("Space")
    assert chip.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "false"
    fold = page.locator("details.provenance summary").first
    fold.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.provenance").first.get_attribute("open") is not None
    regions = page.locator(".scroll").all()
    assert regions
    assert all(
        r.get_attribute("tabindex") == "0" and r.get_attribute("aria-label") for r in regions
    )
    unnamed = page.locator("svg[role=img]:not([aria-label])")
    assert unnamed.count() == 0


@pytest.mark.parametrize("width", [360, 768])
def test_no_sideways_scrolling(page_file, open_page, width):
    page = open_page(page_file, width=width).page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        "[...document.querySelectorAll('.figures svg text')].filter((t) => t.checkVisibility())"
        ".map((t) => t.getBoundingClientRect().height).reduce((a, b) => Math.min(a, b))"
    )
    assert small >= 8  # pixels: still read on a phone


def luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    parts = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return float(np.dot(parts, [0.2126, 0.7152, 0.0722]))


def contrast(page, selector: str) -> float:
    style = (
        "(e) => [getComputedStyle(e).color, getComputedStyle(e.closest('.card')).backgroundColor]"
    )
    ink, paper = page.locator(selector).first.evaluate(style)
    high, low = sorted((luminance(ink), luminance(paper)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_can_be_read(page_file, open_page, scheme):
    page = open_page(page_file, color_scheme=scheme).page
    background = "getComputedStyle(document.body).backgroundColor"
    assert (luminance(page.evaluate(background)) < 0.2) == (scheme == "dark")
    for selector in ("h2", "td.number", ".caption", "figcaption"):
        assert contrast(page, f"article {selector}") > 4.5
    page.locator("#theme").click()
    assert (luminance(page.evaluate(background)) < 0.2) == (scheme == "light")
    page.reload()  # the reader's choice is kept
    assert (luminance(page.evaluate(background)) < 0.2) == (scheme == "light")


def test_the_command_is_copied(page_file, open_page):
    tab = open_page(page_file, permissions=["clipboard-read", "clipboard-write"])
    made = tab.page.locator("details.provenance").first
    made.locator("summary").click()
    made.get_by_role("button", name="Copy").click()
    made.locator(".copy:text-is('Copied')").wait_for()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied == made.locator("code").inner_text() == "deepccg run --method deepccg"


def test_without_scripts_all_is_shown(page_file, open_page):
    tab = open_page(page_file, java_script_enabled=False)
    assert tab.page.locator(f"{LEAD} tbody tr").count() == 5
    assert not tab.page.locator(".filters").is_visible()
    assert tab.page.locator("figure svg").first.is_visible()


def test_print_shows_no_controls(page_file, open_page):
    page = open_page(page_file).page
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator(".filters").is_visible()
    assert page.locator("article").first.is_visible()
    assert luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) > 0.9


def test_tables_are_searched_and_sorted(page_file, open_page):
    tab = open_page(page_file)
    tab.page.locator("#search").fill("sgd")
    assert shown_rows(tab) == ["SGD"]
    assert "word=sgd" in tab.page.url
    dashes = tab.page.locator(".overview td:not(.off)").all_inner_texts()
    assert dashes
    assert "-" not in dashes  # settings without SGD have no column
    tab.page.get_by_role("button", name="Show all").click()
    table = tab.page.locator(LEAD).first
    sort = table.locator("thead th").nth(1).locator(".sort")
    for order in ("descending", "ascending"):
        sort.click()
        assert table.locator("thead th").nth(1).get_attribute("aria-sort") == order
        cells = table.locator("tbody td:nth-of-type(1)").all_inner_texts()
        means = [float(text.split()[0]) for text in cells]
        assert means == sorted(means, reverse=order == "descending")
    assert tab.problems == []


def test_tables_and_figures_are_saved_and_enlarged(page_file, open_page):
    tab = open_page(page_file)
    article = tab.page.locator("article").first
    with tab.page.expect_download() as table:
        article.get_by_role("button", name=re.compile("^Save Results of")).click()
    lines = Path(table.value.path()).read_text(encoding="utf-8").splitlines()
    assert table.value.suggested_filename.endswith(".csv")
    assert [line.partition(",")[0] for line in lines] == ["Method", "DeepCCG", "ER", "SGD"]
    with tab.page.expect_download() as figure:
        article.get_by_role("button", name=re.compile("^Save Final accuracy")).click()
    drawn = ElementTree.fromstring(Path(figure.value.path()).read_text(encoding="utf-8"))  # noqa: S314
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert not any("var(" in (each.get("style") or "") for each in drawn.iter())
    article.get_by_role("button", name=re.compile("^Enlarge Final accuracy")).click()
    assert tab.page.locator("dialog[open] svg").is_visible()
    tab.page.keyboard.press("Escape")
    wide = tab.page.locator(".overview .scroll")
    before = wide.bounding_box()["width"]
    tab.page.get_by_role("button", name=re.compile("^Enlarge All settings")).click()
    large = tab.page.locator("dialog[open] .scroll").bounding_box()
    close = tab.page.get_by_role("button", name="Close").bounding_box()
    assert large["width"] >= before
    assert close["y"] + close["height"] <= large["y"]  # above the table, not beside it
    assert tab.problems == []


def test_many_methods_are_chosen_in_a_menu_that_says_what_is_chosen(runs, tmp_path, open_page):
    (only,) = find_runs([runs / "er" / "seed-0"])
    first = read_run(only)
    held_out = {**first.config["evaluation"], "validation": 0.1}
    many = [
        replace(first, config={**first.config, "method": {"name": f"m{k}"}, "evaluation": scored})
        for scored, methods in ((first.config["evaluation"], 9), (held_out, 2))
        for k in range(methods)
    ]
    path = tmp_path / "report.html"
    comparisons = group_runs(many)
    details = {row.key: RowDetails("", {}, "no") for each in comparisons for row in each.rows}
    path.write_text(report_page(comparisons, details), encoding="utf-8")
    page = open_page(path).page
    menu, contents = page.locator(".choices summary"), page.locator(".contents")
    assert menu.inner_text() == "9 to choose from"
    assert contents.locator("small").all_inner_texts() == ["9 rows", "2 rows"]
    menu.click()
    for method, said in (("m5", "m5"), ("m6", "m5, m6"), ("m7", "3 of 9 chosen")):
        page.locator(f".chip[data-value={method}]").click()
        assert menu.inner_text() == said
    assert contents.locator("li:visible").all_inner_texts()[0].endswith("3 rows")
    assert contents.locator("li:visible").count() == 1
    assert page.locator("h2.group:visible").all_inner_texts() == ["Test results"]
    page.get_by_role("button", name="Show all").click()
    assert menu.inner_text() == "9 to choose from"
    assert page.locator("h2.group:visible").count() == 2
