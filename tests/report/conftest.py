"""Real runs on the digits, and one browser for all tests that need one."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deepccg.experiment import run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods and two seeds on one stream, ER on another; 20 examples of each digit."""
    place = tmp_path_factory.mktemp("runs")
    small = {"dataset": "digits", "stream.examples_per_class": 20}
    for method in ("deepccg", "er", "sgd"):
        for seed in (0, 1):
            followed = {"evaluation.shift_images": 10} if method == "er" else {}
            run(
                directory=place / method / f"seed-{seed}",
                method=method,
                seed=seed,
                **small,
                **followed,
            )
    run(directory=place / "window", method="er", **small, **{"stream.kind": "shifting-window"})
    run(directory=place / "class", method="er", scenario="class", **small)
    return place


@dataclass
class Tab:
    """A page in the browser, and everything that must not happen there."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium; a test that needs it is skipped, and says so, where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("NOT RUN: there is no Chromium on this system")
    playwright = pytest.importorskip("playwright.sync_api", reason="NOT RUN: no playwright")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Return a function that opens a file in a new window."""
    contexts = []

    def open_in(path: Path, fragment: str = "", width: int = 1280, **options: Any) -> Tab:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        tab = Tab(context.new_page())
        tab.page.on("console", lambda said: tab.problems.append(said.text))
        tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.goto(path.as_uri() + fragment)
        return tab

    yield open_in
    for context in contexts:
        context.close()
