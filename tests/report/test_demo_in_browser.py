"""The demo in a real browser: it draws what it was given, and every control works."""

import base64
import json
import re

import numpy as np
import pytest

from deepccg.demo import DemoRun, Trajectory, demo_page
from deepccg.demo.page import packed_positions
from deepccg.demo.simulate import REACH

BATCHES = 40
TELLING = 30  # the batch, from 0, at which the classifier before the step is most wrong
TASKS = np.repeat([0, 1], BATCHES // 2)
LABELS = np.repeat([0, 1, 2, 3], 5)
CORNERS = np.array([[-2.0, 2.0], [2.0, 2.0], [2.0, -2.0], [-2.0, -2.0]])


def made_up(shift: float) -> Trajectory:
    """Points at their corners; Gaussians there as well, or away from them by ``shift``."""
    positions = np.tile(CORNERS[LABELS].astype(np.float32), (BATCHES, 1, 1))
    means = CORNERS + shift
    surface = np.column_stack([-2 * (means**2).sum(axis=1), 4 * means, np.full(4, 2.0)])
    surfaces = np.tile(surface.astype(np.float32), (BATCHES, 1, 1))
    surfaces[TASKS == 0, 2:] = np.nan
    accuracy = np.linspace(0.5, 1.0 - shift / 10, BATCHES).astype(np.float32)
    name, about = f"Shift {shift} <b>", "Words & <i>words</i>"
    stale = np.where(np.arange(BATCHES) == 0, np.nan, accuracy - 0.1).astype(np.float32)
    stale[TELLING] = 0.25
    return Trajectory(name, about, positions, surfaces, accuracy, stale)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    run = DemoRun((0, 1, 2, 3), LABELS, TASKS, {"a": made_up(0.0), "b": made_up(1.0)})
    page = demo_page(run, "deepccg demo")
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    path.write_text(page, encoding="utf-8")
    return path


def batch(page) -> int:
    return int(page.locator("#batch").inner_text())


def pixel(page, panel: int, x: float, y: float) -> list[int]:
    """The colour of the canvas at a place of the plane."""
    return page.evaluate(
        """([panel, x, y, reach]) => {
          const canvas = document.getElementById(`plane-${panel}`), size = canvas.width;
          const at = [(x + reach) / (2 * reach), (reach - y) / (2 * reach)];
          const [i, j] = at.map((part) => Math.round(part * (size - 1)));
          return [...canvas.getContext("2d").getImageData(i, j, 1, 1).data.slice(0, 3)];
        }""",
        [panel, x, y, REACH],
    )


def test_nothing_is_fetched_and_names_are_text(page_file, open_page):
    tab = open_page(page_file, "#batch=1")
    tab.page.wait_for_load_state("networkidle")
    assert tab.problems == []
    assert [u for u in tab.requests if not u.startswith("data:")] == [page_file.as_uri()]
    assert tab.page.locator("figure h2").first.inner_text().startswith("Shift 0.0 <b>")
    assert page_file.stat().st_size < 120_000


def test_regions_are_those_of_the_surfaces(page_file, open_page):
    page = open_page(page_file, f"#batch={BATCHES}").page
    grounds = [
        pixel(page, 0, x, y) for x, y in ((-2.8, 2.8), (2.8, 2.8), (2.8, -2.8), (-2.8, -2.8))
    ]
    assert len({tuple(colour) for colour in grounds}) == 4
    # Moved by 1 in both directions, the middle lies where the third class was not.
    assert pixel(page, 0, 0.5, 0.1) != pixel(page, 2, 0.5, 0.1)
    page.locator("#time").fill("1")  # two classes have come: nothing is said of the others
    assert batch(page) == 1
    below = pixel(page, 0, -2.8, -2.8)
    assert below == pixel(page, 0, -2.8, 2.8)
    assert page.locator("#score-0").inner_text() == "50 %"


def test_the_middle_panel_has_the_classifier_of_the_step_before(page_file, open_page):
    first_new = BATCHES // 2 + 1  # counted from 1: the batch with which two more classes come
    page = open_page(page_file, f"#batch={first_new}").page
    corner = (-2.8, -2.8)  # of the fourth class
    assert pixel(page, 0, *corner) != pixel(page, 1, *corner)  # it is not known one step late
    page.locator("#on").click()
    assert pixel(page, 0, *corner) == pixel(page, 1, *corner)
    page.locator("#time").fill(str(TELLING + 1))
    assert page.locator("#score-1").inner_text() == "25 %"
    page.locator("#time").fill("1")
    assert page.locator("#score-1").inner_text() == ""  # there was no step before


def test_points_leave_a_trail(tmp_path, open_page):
    moving = made_up(0.0)
    moving.positions[:, :, 0] -= 2 * (np.arange(BATCHES)[:, None] % 2) * (CORNERS[LABELS][:, 0] > 0)
    run = DemoRun((0, 1, 2, 3), LABELS, TASKS, {"a": moving, "b": made_up(0.0)})
    (path := tmp_path / "demo.html").write_text(demo_page(run, "deepccg demo"), encoding="utf-8")
    page = open_page(path, f"#batch={BATCHES}").page
    way, beside = (0.9, 2.0), (0.9, 1.6)  # of the second class, which came from (2, 2) to (0, 2)
    assert pixel(page, 0, *way) != pixel(page, 0, *beside)
    assert pixel(page, 2, *way) == pixel(page, 2, *beside)  # whose points rest


def test_it_plays_by_itself_from_shortly_before_the_telling_batch(page_file, open_page):
    page = open_page(page_file, reduced_motion="no-preference").page
    assert page.locator("#play").inner_text() == "Pause"
    page.locator(f"#batch:text-is('{TELLING + 1}')").wait_for()
    assert "25\u00a0% right" in page.locator("#story").text_content()
    page.locator("#play").click()
    assert page.locator("#play").inner_text() == "Play"
    waiting = open_page(page_file, reduced_motion="reduce").page
    assert waiting.locator("#play").inner_text() == "Play"
    assert batch(waiting) == TELLING - 3


def test_play_runs_to_the_end_and_stops(page_file, open_page):
    tab = open_page(page_file, f"#batch={BATCHES - 10}")
    tab.page.locator("#speed").select_option("fast")
    play = tab.page.locator("#play")
    # In one task of the page: it may be at the end before a slow machine asks for the next.
    assert play.evaluate("each => { each.click(); return each.textContent; }") == "Pause"
    tab.page.locator("#play:text-is('Play')").wait_for()
    assert batch(tab.page) == BATCHES
    assert tab.page.url.endswith(f"#batch={BATCHES}")
    assert "The end of the stream" in tab.page.locator("#story").inner_text()
    play.click()  # once more from the beginning
    play.click()
    assert batch(tab.page) < BATCHES
    assert tab.problems == []


def test_keyboard_slider_and_buttons_move_by_one_batch(page_file, open_page):
    page = open_page(page_file, "#batch=10").page
    assert batch(page) == 10
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert batch(page) == 11
    page.locator("#on").click()
    page.locator("#back").click()
    assert batch(page) == 11
    page.locator("#time").focus()
    page.keyboard.press("ArrowRight")
    assert batch(page) == 12
    page.locator("h1").click()
    page.keyboard.press("Space")
    assert page.locator("#play").inner_text() == "Pause"
    page.keyboard.press("Space")
    assert page.locator("#play").inner_text() == "Play"
    page.keyboard.press("End")
    assert batch(page) == BATCHES
    page.keyboard.press("Home")
    assert batch(page) == 1
    assert "first two digits" in page.locator("#story").inner_text()


@pytest.mark.parametrize("width", [360, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_has_both_colour_schemes(page_file, open_page, width, scheme):
    page = open_page(page_file, "#batch=1", width=width, color_scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (sum(pixel(page, 0, 0, -2.9)) < 380) == (scheme == "dark")
    charts = [chart for chart in page.locator(".stage div svg").all() if chart.is_visible()]
    assert len(charts) == 1
    before = pixel(page, 0, 0, -2.9)
    page.locator("#theme").click()
    assert pixel(page, 0, 0, -2.9) != before


def test_positions_survive_their_packing():
    generator = np.random.default_rng(0)
    given = generator.uniform(-REACH, REACH, (7, 5, 2)).astype(np.float32)
    packed = np.frombuffer(base64.b64decode(packed_positions(given)), dtype="<u2")
    back = packed.reshape(given.shape) / 65535 * 2 * REACH - REACH
    assert np.abs(back - given).max() < 2 * REACH / 65535


def test_the_data_in_the_page_are_json(page_file):
    text = page_file.read_text(encoding="utf-8")
    (run,) = re.findall(r'<script type="application/json" id="run">(.*?)</script>', text, re.DOTALL)
    data = json.loads(run)
    assert data["batches"] == BATCHES
    assert [each["from"] for each in data["story"]] == [0, 20, TELLING, TELLING + 6, 39]
