"""The notebooks of docs/tutorials run from top to bottom, and say what is stored in them."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS, TUTORIALS = ROOT / "benchmarks", ROOT / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.is_dir(), reason="NOT RUN: there is no benchmarks directory beside the tests"
)

# What each notebook is to show, of the names it has defined at its end.
SHOWN = {
    "01_first_stream": lambda got: (
        got["results"]["deepccg"].summary["class_accuracy"]
        > got["results"]["sgd"].summary["class_accuracy"]
    ),
    "02_own_images": lambda got: got["accuracy"] > 0.5,  # of five classes
    "03_drifting_table": lambda got: (
        got["right"]["CCG, half-lives"][-500:].mean() > got["right"]["CCG"][-500:].mean() + 0.05
    ),
    "04_table1_cell": lambda got: set(got["accuracy"]) == {"deepccg", "er"},
    "05_own_method": lambda got: min(got["hard"].values()) > 0.3,  # of ten classes
    "06_pretrained_encoder": lambda got: (
        got["model"].score(got["x_test"], got["y_test"]) > 0.7  # of ten classes
    ),
}


@pytest.fixture(scope="module")
def tutorials():
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("tutorials")
    sys.path.remove(str(BENCHMARKS))


def without_numbers(notebook: dict) -> list[list[str]]:
    """What each code cell left, but for numbers, which depend on the machine's rounding."""
    found = []
    for cell in notebook["cells"]:
        texts = []
        for output in cell.get("outputs", []):
            text = "".join(output.get("text") or output["data"].get("text/plain") or "figure")
            texts.append(re.sub(r"[\d\s.%+-]+", " ", text))
        found.append(texts)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_says(path, tutorials, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = tutorials.read(path)
    stored = without_numbers(notebook)
    namespace = tutorials.execute(notebook)
    assert without_numbers(notebook) == stored
    assert SHOWN[path.stem](namespace)


def test_every_notebook_has_something_to_show():
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)


def test_a_cell_gives_what_it_printed_and_its_last_value(tutorials):
    namespace = {}
    assert tutorials.run_cell("a = 2\nprint(a)\na + 1", namespace) == ("2\n", 3)
    assert tutorials.run_cell("a + 1;", namespace) == ("", None)
    with pytest.raises(ZeroDivisionError):
        tutorials.run_cell("1 / 0", namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_files(path, tutorials):
    cells = tutorials.read(path)["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []
