"""``deepccg report --live``: a real server, a real browser, and real runs that go on meanwhile."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deepccg.experiment import run
from deepccg.report.assemble import assemble_report

# Processes that import torch, and a browser.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = {"dataset": "digits", "stream.examples_per_class": 20}
PROGRAM = str(Path(sys.executable).with_name("deepccg"))
# A run that goes on only when a file says so: after each step it waits until that step is allowed.
# It says how far it is every 0.01 seconds instead of every 10.
PACED_RUN = """
import sys, time
from pathlib import Path
from deepccg.cli import main
from deepccg.cli.progress import RunProgress
from deepccg.sweep import progress

progress.LINE_SECONDS = 0.01
allowed, learn = Path(sys.argv.pop(1)), RunProgress.__call__
def paced(self, step, steps, info):
    learn(self, step, steps, info)
    while step >= int(allowed.read_text() or 0):
        time.sleep(0.02)
RunProgress.__call__ = paced
main()
"""
WAIT = 200_000  # milliseconds: a busy machine is slow, not wrong
TOP = "(element) => element.getBoundingClientRect().top"

LINE = r"er, seed 0: \d+ of 60 batches, loss \d+\.\d{3}(, \d+:\d\d:\d\d left)?"


@dataclass(frozen=True)
class Program:
    """A process, and the file that its standard error goes to."""

    process: subprocess.Popen[str]
    log: Path


Start = Callable[..., Program]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a program; whatever still runs in the end is killed."""
    started: list[Program] = []
    cache = {"DEEPCCG_CACHE": str(tmp_path_factory.mktemp("cache")), "OMP_NUM_THREADS": "1"}

    def begin(*command: object) -> Program:
        place = tmp_path_factory.mktemp("place")
        with (place / "log.txt").open("w") as log:
            process = subprocess.Popen(
                list(map(str, command)),
                cwd=place,
                env=os.environ | cache,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Were it ignored here, it would be there.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        started.append(Program(process, place / "log.txt"))
        return started[-1]

    yield begin
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two methods, one of them in a setting of its own."""
    runs = tmp_path_factory.mktemp("live") / "runs"
    run(directory=runs / "sgd", method="sgd", **SMALL)
    run(directory=runs / "er-class", method="er", scenario="class", **SMALL)
    return runs


@pytest.fixture(scope="module")
def learning(start: Start, place: Path) -> tuple[Program, Path]:
    """A run that waits after its first step, and the file that says how far it may go."""
    allowed = place.parent / "allowed"
    allowed.write_text("0")
    program = start(
        sys.executable, "-c", PACED_RUN, allowed, "run", "--method", "er", "--out", place,
        "--set", "stream.examples_per_class=60", "--eval-every", "5", "--json",
    )  # fmt: skip
    return program, allowed


@pytest.fixture(scope="module")
def server(start: Start, place: Path) -> tuple[Program, str]:
    """The program, and the one line that it prints."""
    program = start(PROGRAM, "report", place, "--live", "--title", "Watched")
    line = program.process.stdout.readline()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", line), program.log.read_text()
    return program, line.strip()


def ask(address: str, path: str = "/", method: str = "GET", **headers: str):
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    return answer, answer.read()


def test_a_page_follows_a_run(learning, server, browser):
    program, allowed = learning
    context = browser.new_context(viewport={"width": 1100, "height": 700})
    page, problems, requests = context.new_page(), [], []
    page.on("console", lambda said: problems.append(said.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(server[1])
    expect = pytest.importorskip("playwright.sync_api").expect
    expect.set_options(timeout=WAIT)

    unfinished = page.locator("section.unfinished tbody tr")
    expect(unfinished).to_contain_text("0 of 60")
    allowed.write_text("51")
    expect(unfinished).to_contain_text("50 of 60")
    expect(page.locator("#live")).to_contain_text("1 running, 0 stopped")
    expect(page.locator("#changed")).to_have_text(re.compile(r"last changed at \d+:\d\d:\d\d"))

    page.get_by_role("button", name="SGD", exact=True).click()
    page.locator("#search").fill("s")
    fold = page.locator("article:not(.off) details.provenance:not(.off)").first
    fold.locator("summary").click()
    fold.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    kept, view = fold.element_handle(), page.url
    before, down = fold.evaluate(TOP), page.evaluate("scrollY")
    assert down > 300

    def nothing_moved() -> None:
        assert fold.get_attribute("open") is not None
        assert abs(fold.evaluate(TOP) - before) <= 1
        assert page.locator("#search").input_value() == "s"
        pressed = page.get_by_role("button", name="SGD", exact=True)
        assert pressed.get_attribute("aria-pressed") == "true"
        assert page.locator("article:not(.off)").count() == 1
        assert page.url == view

    allowed.write_text("58")
    expect(unfinished).to_contain_text("55 of 60")
    nothing_moved()
    assert fold.evaluate("(now, then) => now === then", kept)  # only what changed was replaced
    allowed.write_text("1000")
    expect(page.locator("section.unfinished")).to_have_count(0)
    expect(page.locator("#live")).to_contain_text("no run unfinished")
    nothing_moved()
    out, _ = program.process.communicate()
    assert program.process.returncode == 0
    assert json.loads(out)  # what it said meanwhile went to the file
    lines = program.log.read_text().splitlines()
    assert lines
    assert all(re.fullmatch(LINE, line) for line in lines), lines

    # It stands where it belongs, with the others, and has all that they have.
    page.get_by_role("button", name="Show all").click()
    titles = page.locator("article h2").all_inner_texts()
    assert len(titles) == 3
    links = page.locator(".contents a").all_inner_texts()
    assert links == titles
    for article in page.locator("article").all():
        assert article.locator("figure .tools").count() == article.locator("figure svg").count()
    page.get_by_role("button", name="ER", exact=True).click()
    assert page.locator("article:not(.off)").count() == 2
    assert problems == []
    assert set(requests) == {server[1]}
    context.close()


def test_a_changed_setting_keeps_folds_and_order(server, place, browser):
    page = browser.new_context(viewport={"width": 1100, "height": 700}).new_page()
    page.goto(server[1])
    expect = pytest.importorskip("playwright.sync_api").expect
    article = page.locator("article", has=page.locator("details.provenance[data-method=sgd]"))
    fold = article.locator("details.provenance[data-method=sgd]")
    fold.locator("summary").click()
    fold.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    old, before = fold.element_handle(), fold.evaluate(TOP)
    for method in ("er", "deepccg"):  # new rows of the setting one looks at
        run(directory=place / f"{method}-new", method=method, **SMALL)
    expect(article.locator("table.lead tbody tr")).to_have_count(3, timeout=WAIT)
    assert not fold.evaluate("(now, then) => now === then", old)  # it was replaced
    assert fold.get_attribute("open") is not None
    assert article.locator("details.provenance[open]").count() == 1
    assert fold.locator("summary").evaluate("(e) => e === document.activeElement")
    assert abs(fold.evaluate(TOP) - before) <= 1

    sort = article.locator("table.lead thead th").nth(1)
    sort.locator(".sort").click()
    sort.locator(".sort").click()
    sort.locator(".sort").focus()
    run(directory=place / "sgd-1", method="sgd", seed=1, **SMALL)
    expect(article.locator("table.lead tbody")).to_contain_text("±", timeout=WAIT)
    assert sort.get_attribute("aria-sort") == "ascending"
    cells = article.locator("table.lead tbody td:nth-of-type(1)").all_inner_texts()
    means = [float(text.split()[0]) for text in cells]
    assert means == sorted(means)
    assert sort.locator(".sort").evaluate("(e) => e === document.activeElement")
    page.context.close()


def test_a_killed_run_is_told_from_one_that_learns(start, server, place, browser):
    allowed = place.parent / "allowed-2"
    allowed.write_text("3")
    program = start(
        sys.executable, "-c", PACED_RUN, allowed, "run", "--method", "sgd", "--out", place,
        "--set", "stream.examples_per_class=30", "--checkpoint-every", "1",
    )  # fmt: skip
    page = browser.new_context().new_page()
    page.goto(server[1])
    expect = pytest.importorskip("playwright.sync_api").expect
    state = page.locator("section.unfinished tbody tr td").first
    expect(state).to_have_text("running", timeout=WAIT)
    expect(page.locator("#live")).to_contain_text("1 running, 0 stopped")
    program.process.kill()
    program.process.communicate()
    expect(state).to_contain_text("stopped: deepccg resume ", timeout=WAIT)
    expect(page.locator("#live")).to_contain_text("0 running, 1 stopped")

    command = state.inner_text().removeprefix("stopped: ")
    written = assemble_report([place]).page()
    assert f"stopped: {command}<" in written
    resumed = start(PROGRAM, *command.split()[1:])
    assert resumed.process.wait() == 0
    expect(page.locator("section.unfinished")).to_have_count(0, timeout=WAIT)
    assert "stopped: " not in assemble_report([place]).page()
    page.context.close()


def test_only_the_page_and_only_for_this_machine(server):
    address = server[1]
    answer, page = ask(address)
    assert answer.status == 200
    assert b"<h1>Watched</h1>" in page
    assert b"connect-src 'self'" in page
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again, nothing = ask(address, If_None_Match=answer.headers["ETag"])
    assert (again.status, nothing) == (304, b"")
    assert again.headers["Last-Modified"] == answer.headers["Last-Modified"]
    assert ask(address, Host="localhost:9000")[0].status == 200  # the end of a tunnel
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "localhost@evil"):
        refused, said = ask(address, Host=host)
        assert refused.status == 403
        assert b"Watched" not in said
    for path in ("/records.jsonl", "/../etc/passwd", "/?x", "/index.html"):
        assert ask(address, path)[0].status == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(address, method=method)[0].status == 501
    port = urlsplit(address).port
    own = {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for outside in own - {"127.0.0.1"}:
        with socket.socket() as outsider:
            outsider.settimeout(2)
            assert outsider.connect_ex((outside, port)) != 0


def test_a_slow_client_keeps_nobody_waiting(server):
    port = urlsplit(server[1]).port
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert ask(server[1])[0].status == 200


def test_nothing_is_made_again_where_nothing_changed(server):
    def processor_time() -> int:
        fields = Path(f"/proc/{server[0].process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    if not Path("/proc/self/stat").exists():
        pytest.skip("NOT RUN: no /proc here")
    tag, before = ask(server[1])[0].headers["ETag"], processor_time()
    time.sleep(2.5)
    assert ask(server[1])[0].headers["ETag"] == tag
    spent = (processor_time() - before) / os.sysconf("SC_CLK_TCK")
    assert spent < 0.3  # seconds


def test_ctrl_c_ends_it_and_the_page_says_so(server, browser):  # the last one: it needs no more
    program, address = server
    page = browser.new_context().new_page()
    page.goto(address)
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("#changed")).to_contain_text("last changed")
    program.process.send_signal(signal.SIGINT)
    out, _ = program.process.communicate()
    assert (program.process.returncode, out, program.log.read_text()) == (130, "", "Stopped.\n")
    expect(page.locator("#live")).to_contain_text("not connected", timeout=WAIT)
    page.context.close()
