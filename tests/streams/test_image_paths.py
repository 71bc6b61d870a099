"""Image cells that name a file instead of holding its bytes: only the user's own are opened."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.streams import load_dataset


def name_file(table_file: Path, path: str) -> None:
    """Let the first image of a parquet file be a file of this path, instead of bytes."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(table_file)
    cells = table.column("img").to_pylist()
    cells[0] = {"bytes": None, "path": path}
    image = pyarrow.array(cells, type=table.schema.field("img").type)
    pyarrow.parquet.write_table(table.set_column(0, table.schema.field("img"), image), table_file)


@pytest.mark.parametrize("path", ["nine.png", "../nine.png", "{data}/nine.png", "data/nine.png"])
def test_images_stored_by_path(tmp_path: Path, write_parquet, picture, path: str) -> None:
    """Relative to the table's folder or to the directory that was given, or in full."""
    data_dir = tmp_path / "own"
    file = write_parquet(data_dir / "data" / "train.parquet", [0, 1], names=["a", "b"])
    nine = data_dir / "nine.png" if path.endswith("../nine.png") else data_dir / "data" / "nine.png"
    Image.fromarray(picture(9)).save(nine)
    name_file(file, path.format(data=data_dir / "data"))
    data = load_dataset("hf:me/mine", data_dir=data_dir, cache_dir=tmp_path / "cache")
    assert np.array_equal(data.train.x[0], picture(9).transpose(2, 0, 1))


@pytest.mark.parametrize(
    "path",
    ["{outside}", "../../outside.png", "link.png", "/etc/passwd", "loop.png", "gone.png", "a\0b"],
)
def test_files_that_are_not_the_users_are_not_opened(
    tmp_path: Path, write_parquet, picture, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    outside = tmp_path / "outside.png"
    Image.fromarray(picture(9)).save(outside)
    file = write_parquet(tmp_path / "own" / "train.parquet", [0, 1], names=["a", "b"])
    (file.parent / "link.png").symlink_to(outside)
    (file.parent / "loop.png").symlink_to("loop.png")
    name_file(file, path.format(outside=outside))
    monkeypatch.chdir(tmp_path)  # what lies there is not meant either
    with pytest.raises(InputError) as caught:
        load_dataset("hf:me/mine", data_dir=file.parent, cache_dir=tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith("the image in row 0 of train.parquet is the file ")
    assert f", which is not in {file.parent}: put it there" in message


def test_a_table_of_the_hub_names_only_what_was_downloaded(
    tmp_path: Path, picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for place in ("hub", "elsewhere"):
        (tmp_path / place).mkdir()
        Image.fromarray(picture(9)).save(tmp_path / place / "nine.png")
        cells = [{"bytes": None, "path": str(tmp_path / place / "nine.png")}] * 2
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
        )
        rows = datasets.Dataset.from_dict({"image": cells, "label": [0, 1]}, features=features)
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, rows=rows: {"train": rows})
        call = partial(load_dataset, f"hf:me/{place}", cache_dir=tmp_path / "cache")
        if place == "hub":
            assert np.array_equal(call().train.x[1], picture(9).transpose(2, 0, 1))
        else:
            with pytest.raises(InputError, match=r"the file .*elsewhere/nine\.png, which is not"):
                call()
