"""``deepccg report``: the page, what it says of each row, and the files beside it."""

import base64
import html
import io
import re
import shlex
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import validated
from deepccg.experiment import RunConfig, load_run, resolve, run, run_command
from deepccg.records import RunDirectory

SMALL = {"stream.examples_per_class": 20}


@pytest.fixture
def runs(finished, place: Path) -> Path:
    """A copy of a finished run, which a test may change."""
    shutil.copytree(finished.directory, place / "runs" / "er" / "seed-0")
    return place / "runs"


def test_a_page_of_a_run(deepccg, runs, place):
    done = deepccg("report", runs, "--out", "page.html", "--title", "My <runs>")
    assert (done.code, done.err) == (0, "")
    assert done.out.strip() == "Report of 1 run: page.html"
    page = (place / "page.html").read_text(encoding="utf-8")
    assert "<h1>My &lt;runs&gt;</h1>" in page
    assert "protocol: single pass, 200 examples read once; memory" in html.unescape(page)
    assert not [file for file in place.iterdir() if file.name.startswith(".")]


def test_the_command_on_the_page_makes_the_run_again(deepccg, runs, place):
    deepccg("report", runs)
    page = html.unescape((place / "report.html").read_text(encoding="utf-8"))
    (command,) = re.findall(r"<code>(deepccg run [^<]*)</code>", page)
    words = shlex.split(command)
    assert deepccg(*words[1:], "--out", "again").code == 0
    (again,) = (place / "again").rglob("records.jsonl")
    assert again.read_bytes() == (runs / "er" / "seed-0" / "records.jsonl").read_bytes()


def test_the_gallery_shows_the_memory_of_the_checkpoint(deepccg, runs, place):
    deepccg("report", runs, "--memory-images", "100")
    page = html.unescape((place / "report.html").read_text(encoding="utf-8"))
    shown = re.findall(r"<dt>(\S+) <small>(\d+)</small></dt>\s*<dd>(.*?)</dd>", page)
    trained = load_run(runs / "er" / "seed-0")
    memory, classes = trained.learner.memory, trained.learner.classes
    assert [name for name, _, _ in shown] == [trained.class_names[c] for c in classes]
    for column, (_, count, content) in enumerate(shown):
        own = memory.x[memory.y == column].numpy()
        assert int(count) == len(own)
        if not len(own):
            continue
        source = re.search(r'src="data:image/png;base64,([^"]+)"', content)
        if source is None:  # a JPEG, which is not exact
            continue
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(source[1]))))
        assert np.array_equal(picture, np.concatenate(own[:, 0], axis=1))


def test_without_a_checkpoint_the_page_says_so(deepccg, runs, place):
    (runs / "er" / "seed-0" / "checkpoint.safetensors").unlink()
    (runs / "er" / "seed-0" / "previous.safetensors").unlink(missing_ok=True)  # of a slow run
    assert deepccg("report", runs).code == 0
    assert "ER: no checkpoint in the run directory" in (place / "report.html").read_text()


@pytest.mark.slow
def test_tables_and_figures_are_exported(deepccg, runs, place):
    done = deepccg("report", runs, "--export", "files")
    assert done.code == 0
    count = len(list((place / "files").iterdir()))
    assert f"{count} tables and figures: files" in done.out


def test_what_cannot_be_shown_is_named(deepccg, runs, place):
    shutil.copytree(runs / "er" / "seed-0", runs / "damaged")
    records = runs / "damaged" / "records.jsonl"
    records.write_bytes(b"{}\n" + records.read_bytes())
    (runs / "begun").mkdir()
    (runs / "begun" / "config.toml").write_text("[stream]\n[method]\n[evaluation]\n")
    done = deepccg("report", runs)
    assert done.code == 0
    assert "Warning: left out:" in done.err
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "1 directory not shown" in page
    assert "Unfinished runs" in page


@pytest.mark.parametrize("there", [True, False])
def test_nothing_to_show_is_one_line(deepccg, place, there):
    if there:
        (place / "runs").mkdir()
    done = deepccg("report", "runs")
    assert done.code == 2
    assert re.search(r"^Error: (there is no run in runs|runs is not a directory)", done.err)
    assert not (place / "report.html").exists()


def test_a_place_that_cannot_be_written_is_one_line(deepccg, runs, place):
    (place / "file").write_text("")
    done = deepccg("report", runs, "--out", "file/page.html")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_port_in_use_is_one_line(deepccg, runs):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = deepccg("report", runs, "--live", "--port", port)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"Error: cannot listen on port {port}: Address already in use")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--live", "--out", "page.html"], "Error: --live writes no files: leave out --out"),
        (["--live", "--export", "files"], "Error: --live writes no files: leave out --out"),
        (["--port", "8000"], "Error: --port is where a live page is served: add --live"),
    ],
)
def test_options_that_do_not_go_together(deepccg, runs, place, options, said):
    done = deepccg("report", runs, *options)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(said)
    assert [each.name for each in place.iterdir()] == ["runs"]


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "er"},
        {"method": "deepccg", "preset": "paper", "method.lr": 0.05, "memory": 30},
        {"method": "ewc", "scenario": "class", "stream": "shifting-window", "network.layers": [5]},
        {"method": "multi-task", "evaluation.validation": 0.2, "evaluation.every": 7},
    ],
    ids=lambda settings: settings["method"],
)
def test_a_command_leads_to_its_configuration(settings, deepccg, place):
    config = resolve({**settings, **SMALL, "seed": 3})
    words = shlex.split(run_command(config, "3"))
    assert deepccg(*words[1:], "--out", "made").code == 0
    (made,) = (place / "made").rglob("config.toml")
    recorded, wanted = (
        RunDirectory(made.parent).config(),
        config.model_dump(mode="json", exclude_none=True),
    )
    for fields in (recorded, wanted):
        fields.pop("kernels")  # which code computes: "auto" is decided when a run begins
    assert recorded == wanted


def test_flags_cannot_bring_back_a_preset_file(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("[[rule]]\nset = { method = { lr = 0.01 } }\n")
    config = resolve({"method": "er", "preset": str(preset)})
    command = run_command(config, "0")
    assert command is None or "lr=0.01" in command


def test_an_older_configuration_still_has_a_command(tmp_path):
    """A field that a method got later has its default in old runs."""
    result = run(directory=tmp_path / "run", method="deepccg", **SMALL)
    recorded = RunDirectory(tmp_path / "run").config()
    recorded["method"].pop("lr")
    command = run_command(validated(RunConfig, recorded), "0")
    assert command is not None
    assert result.config.method.name in command
