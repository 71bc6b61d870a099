"""The command line, in this process or in one of its own, in an empty directory."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from killing import Forks
from PIL import Image

from deepccg.cli import main
from deepccg.experiment import RunResult, run
from deepccg.streams import load_dataset


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The output without its line breaks."""
        return " ".join(self.out.split())


Command = Callable[..., Done]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty directory in which commands run."""
    empty = tmp_path / "place"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPCCG_DEBUG", "")  # and so it is unset again after `--debug`
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "dumb")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    # What a command says on a busy machine is what it says on any other.
    monkeypatch.setattr("deepccg.sweep.progress.LINE_SECONDS", float("inf"))
    return empty


@pytest.fixture
def deepccg(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the program's entry point here: no second import of torch."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["deepccg", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Done(int(left.value.code or 0), out, err)

    return call


@pytest.fixture
def deepccg_process(forks: Forks, place: Path) -> Command:
    """Runs the program in a process of its own."""

    def call(*arguments: object) -> Done:
        done = forks([*map(str, arguments)], str(place), environment=dict(os.environ))
        return Done(done.status, done.out, done.err)

    return call


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run on the digits; ER, seed 0."""
    settings = {"stream.examples_per_class": 20, "method": "er"}
    return run(directory=tmp_path_factory.mktemp("finished") / "run", **settings)


@pytest.fixture
def write_digits() -> Callable[..., Path]:
    """Writes digits as class folders of PNG files."""

    def write(folder: Path, *, classes: int, count: int) -> Path:
        data = load_dataset("digits").train
        for label in range(classes):
            (folder / str(label)).mkdir(parents=True)
            for i, pixels in enumerate(data.x[data.y == label][:count, 0]):
                Image.fromarray(pixels).save(folder / str(label) / f"{i}.png")
        return folder

    return write


@pytest.fixture
def write_cifar10() -> Callable[[], Path]:
    """Writes a small look-alike of CIFAR-10 as parquet files."""

    def write() -> Path:
        import datasets

        names = [f"class {c}" for c in range(10)]
        features = datasets.Features(
            {"img": datasets.Image(), "label": datasets.ClassLabel(names=names)}
        )
        generator = np.random.default_rng(0)
        for part, count in (("train", 40), ("test", 10)):
            pixels = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
            rows = {
                "img": [Image.fromarray(x) for x in pixels],
                "label": [*range(10)] * (count // 10),
            }
            table = datasets.Dataset.from_dict(rows, features=features)
            table.to_parquet(Path(f"{part}.parquet"))
        return Path.cwd()

    return write
