"""Small real files to load: parquet as the hub writes it, and folders of images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Picture = Callable[..., np.ndarray]
WriteParquet = Callable[..., Path]
WriteFolder = Callable[..., Path]


def make_picture(seed: int, size: tuple[int, int] = (6, 5)) -> np.ndarray:
    """Random pixels ``[H, W, 3]``, not square, so that a swapped axis shows."""
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


@pytest.fixture
def picture() -> Picture:
    return make_picture


@pytest.fixture
def write_parquet() -> WriteParquet:
    def write(
        file: Path,
        labels: list,
        *,
        names: list[str] | None = None,
        image: str = "img",
        label: str = "label",
        size: tuple[int, int] = (6, 5),
        first_seed: int = 0,
    ) -> Path:
        """Row i shows ``picture(first_seed + i)``."""
        import datasets

        features = {image: datasets.Image()}
        if names is not None:
            features[label] = datasets.ClassLabel(names=names)
        else:
            kind = "string" if isinstance(labels[0], str) else "int64"
            features[label] = datasets.Value(kind)
        pictures = [Image.fromarray(make_picture(first_seed + i, size)) for i in range(len(labels))]
        table = datasets.Dataset.from_dict(
            {image: pictures, label: labels}, features=datasets.Features(features)
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(file)
        return file

    return write


@pytest.fixture
def write_folder() -> WriteFolder:
    def write(
        root: Path, counts: dict[str, int], *, size: tuple[int, int] = (6, 5), first_seed: int = 0
    ) -> Path:
        """``root/<class>/<i>.png``; all pictures differ."""
        seed = first_seed
        for name, count in counts.items():
            (root / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                Image.fromarray(make_picture(seed, size)).save(root / name / f"{i}.png")
                seed += 1
        return root

    return write
