"""Data of the user's own: arrays, folders, parquet files, and no trace of where they lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.experiment import run
from deepccg.streams import from_arrays


def contents(directory: Path) -> dict[str, bytes]:
    files = sorted(directory.iterdir())
    return {file.name: file.read_bytes() for file in files if file.name != "timing.json"}


def test_arrays_of_vectors_can_be_learned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    centres = 3 * rng.normal(size=(4, 5))
    x = centres[y] + rng.normal(size=(120, 5))
    data = from_arrays(x, y, x, y, class_names=list("abcd"), name="clouds")
    result = run(directory=tmp_path / "run", data=data, method="deepccg", memory=20)
    assert result.config.dataset == "clouds"
    assert result.summary["task_accuracy"] > 0.8


def picture(seed: int, size: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8))


def write_class_folders(root: Path) -> None:
    for c, name in enumerate(["cat", "dog", "owl", "fox"]):
        (root / name).mkdir(parents=True)
        for i in range(10):
            picture(100 * c + i, 8).save(root / name / f"{i}.png")


def write_parquet(root: Path, scratch: Path) -> None:
    """A cifar10 of 40 training and 20 test images."""
    root.mkdir()
    for part, count in (("train", 40), ("test", 20)):
        cells = []
        for i in range(count):
            picture(i, 32).save(scratch)
            cells.append({"bytes": scratch.read_bytes(), "path": None})
        table = pyarrow.table({"img": cells, "label": [i % 10 for i in range(count)]})
        pyarrow.parquet.write_table(table, root / f"{part}.parquet")


@pytest.mark.parametrize("source", ["folder", "parquet"])
def test_no_written_file_contains_the_path_of_the_data(tmp_path: Path, source: str) -> None:
    place = tmp_path / "secret-place" / "pets"
    if source == "folder":
        write_class_folders(place)
        settings: dict[str, Any] = {"dataset": str(place)}
    else:
        place.parent.mkdir()
        write_parquet(place, tmp_path / "scratch.png")
        settings = {"dataset": "cifar10", "data_dir": place}
    out = tmp_path / "run"
    result = run(directory=out, **settings, **{"network.kind": "mlp", "memory_per_class": 2})
    assert result.config.dataset == ("pets" if source == "folder" else "cifar10")
    for name, content in contents(out).items():
        for trace in (str(tmp_path), "secret-place", "data_dir", "pets/"):
            assert trace.encode() not in content, (name, trace)


def test_without_a_test_set_a_fifth_of_each_class_is_held_out(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    data = from_arrays(x, np.repeat(["ant", "bee"], [30, 10]), name="<b>")
    assert np.bincount(data.test.y).tolist() == [6, 2]
    rows = np.concatenate([data.train.x, data.test.x])
    np.testing.assert_array_equal(np.sort(rows[:, 0]), np.sort(x[:, 0]))  # each once
    for part in ({"x_test": x}, {"y_test": [0, 1]}):
        with pytest.raises(InputError, match="give both, or neither"):
            from_arrays(x, np.repeat([0, 1], 20), **part)
    with pytest.raises(InputError, match="class 1 has 1 examples: holding out"):
        from_arrays(x[:11], [0] * 10 + [1])
    result = run(directory=tmp_path / "run", data=data, method="ncm", memory=4)
    score = f"class accuracy {100 * result.summary['class_accuracy']:.1f} %"
    assert score in repr(result)
    assert "\n" not in repr(result)
    assert len(repr(result)) < 200 + len(str(tmp_path))
    page = result._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "<td>task forgetting</td>" in page
