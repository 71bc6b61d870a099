"""The benchmark counts and divides correctly, and writes nothing unless it is asked to."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from torch import nn

from deepccg.networks import SlimResNet18

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
WRITTEN = (BENCHMARKS / "bench.json", ROOT / "docs/performance.md", ROOT / "docs/images/cost.png")

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.is_dir(), reason="NOT RUN: there is no benchmarks directory beside the tests"
)


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(BENCHMARKS))
    names = ("interleaved", "bench_tables", "bench")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def interleaved(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["interleaved"]


@pytest.fixture
def tables(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["bench_tables"]


def test_operations_are_those_of_the_convolutions(interleaved: ModuleType) -> None:
    forward, backward = interleaved.operations_per_image((3, 32, 32))
    network, side, expected = SlimResNet18(3), 32, 0
    # Sides of the maps: 32 in the stem and the first stage, then halved by each stage.
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            stage = int(name.split(".")[1]) // 2 if name.startswith("stages") else 0
            own = side // 2**stage
            weights = module.in_channels * module.out_channels * module.kernel_size[0] ** 2
            expected += 2 * own**2 * weights
    stem = 2 * 32**2 * 3 * 10 * 3**2
    assert forward == expected
    assert backward == 2 * expected - stem  # the image needs no gradient


def test_share_of_peak_is_that_of_operations_per_second(interleaved: ModuleType) -> None:
    product = 2 * interleaved.PEAK_SIDE**3
    # A tenth of the operations in half the time: a fifth of the rate.
    assert interleaved.share_of_peak(product / 10, [0.5], [1.0]) == pytest.approx([0.2] * 3)
    # Round by round: a machine that slows down for both changes nothing.
    found = interleaved.share_of_peak(product, [2.0, 4.0, 40.0], [1.0, 2.0, 20.0])
    assert found == pytest.approx([0.5] * 3)


def test_the_peak_is_a_product_of_that_size(interleaved: ModuleType) -> None:
    result = interleaved.peak_step()()
    assert result.shape == (interleaved.PEAK_SIDE, interleaved.PEAK_SIDE)
    assert (result == interleaved.PEAK_SIDE).all()


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_spread_is_median_and_quartiles(interleaved: ModuleType, count: int) -> None:
    values = np.random.default_rng(count).random(count).tolist()
    expected = np.quantile(values, [0.5, 0.25, 0.75])
    assert interleaved.spread(values) == pytest.approx(expected.tolist())


def test_contestants_take_turns(interleaved: ModuleType) -> None:
    order: list[str] = []
    steps = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    cpu, wall = interleaved.alternate(steps, rounds=3, steps=2)
    assert "".join(order) == "ab" + "aabb" + "bbaa" + "aabb"  # once to warm up
    assert {name: len(times) for name, times in (cpu | wall).items()} == {"a": 3, "b": 3}


def test_a_row_shows_its_share_of_the_peak(tables: ModuleType) -> None:
    row = {
        "ms": [44.0, 43.2, 47.0],
        "times the reference": [1.69, 1.6, 2.29],
        "cost in ER steps": [1.0, 1.0, 1.0],
        "share of peak": [0.284, 0.27, 0.31],
        "passes": 1.0,
        "images": 20.0,
        "images with gradient": 20.0,
    }
    line = tables.steps_table({"er": row}).splitlines()[-1]
    assert line == (
        "| er | 44 (43-47) | 1.69 (1.60-2.29) | 1.00 (1.00-1.00) | 28 (27-31) % | 1 | 20 | 20 |"
    )
    del row["share of peak"]
    assert "| - | 1 | 20 | 20 |" in tables.steps_table({"er": row})


def test_every_part_has_tables_of_its_own(tables: ModuleType) -> None:
    found = json.loads(WRITTEN[0].read_text())
    for key, value in found.items():
        if key != "machine":
            assert list(tables.sections({key: value})) == [key]
    assert "targets" in tables.sections(found)


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(BENCHMARKS / "bench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_part_is_printed_and_nothing_is_written() -> None:
    before = [file.read_bytes() for file in WRITTEN]
    done = bench("--quick", "--methods", "er", "sgd", "--parts", "steps", "--threads", "1")
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[0] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["| method", "| ---", "| er", "| sgd"]
    assert [file.read_bytes() for file in WRITTEN] == before


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--full", "--methods", "er"], []])
def test_whole_tables_are_not_replaced_by_a_part(arguments: list[str]) -> None:
    before = [file.read_bytes() for file in WRITTEN]
    done = bench(*arguments, "--write")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "--write replaces whole tables: give --full and leave out --methods"
    )
    assert [file.read_bytes() for file in WRITTEN] == before


def test_what_is_kept_stays_with_what_was_there(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = modules["bench"]
    (tmp_path / "performance.md").write_text("a\n<!-- two processes over one -->\n<!-- / -->\nb\n")
    results = tmp_path / "bench.json"
    results.write_text(json.dumps({"peak MiB": {"er": 300.0}}))
    monkeypatch.setattr(module, "RESULTS", results)
    monkeypatch.setattr(module, "DOCS", tmp_path)
    module.keep({"two processes over one": 1.1})
    found = json.loads(results.read_text())
    assert found["peak MiB"] == {"er": 300.0}
    assert found["two processes over one"] == 1.1
    page = (tmp_path / "performance.md").read_text()
    line = "Two processes took 1.10 times as long as one."
    assert page == f"a\n<!-- two processes over one -->\n{line}\n<!-- / -->\nb\n"
