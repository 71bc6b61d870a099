import hashlib
from pathlib import Path

import numpy as np
import pytest

from deepccg.core import InputError
from deepccg.streams import Dataset, Split, load_dataset
from deepccg.streams.cache import read_entry
from deepccg.streams.mini_imagenet import mini_imagenet_recipe
from deepccg.streams.recipes import Facts

NAMES = ["n01", "n02", "n03"]


def load(data_dir: Path, cache: Path, **counts: int) -> Dataset:
    """The real loader, for 3 classes of 4 training and 2 test images."""
    facts = Facts(("image", "label"), (84, 84), n_classes=3)
    sizes = {"train_per_class": 4, "test_per_class": 2, **counts}
    recipe = mini_imagenet_recipe("timm/mini-imagenet", data_dir, ("data",), facts, **sizes)
    return recipe.dataset(cache)


@pytest.fixture
def write_parts():
    def write(root: Path, parts: dict[str, list[tuple[int, int]]]) -> Path:
        """Each part is a list of (label, picture seed), one file per part as on the hub."""
        import datasets
        from PIL import Image

        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
        )
        for part, rows in parts.items():
            pictures = [Image.fromarray(picture_of(seed)) for _, seed in rows]
            columns = {"image": pictures, "label": [label for label, _ in rows]}
            file = root / "data" / f"{part}-00000-of-00001.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            datasets.Dataset.from_dict(columns, features=features).to_parquet(file)
        return root

    return write


def picture_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (84, 84, 3), dtype=np.uint8)


def images_of(split: Split) -> set[tuple[int, bytes]]:
    return {(int(c), x.tobytes()) for x, c in zip(split.x, split.y, strict=True)}


# Seven pictures of each class, seeds 10 c to 10 c + 6.
ROWS = [(c, 10 * c + i) for c in range(3) for i in range(7)]


def test_every_class_is_divided_by_content(tmp_path: Path, write_parts) -> None:
    by_class = {"train": ROWS[:7], "validation": ROWS[7:14], "test": ROWS[14:]}
    data = load(write_parts(tmp_path / "data", by_class), tmp_path / "cache")
    assert data.class_names == tuple(NAMES)
    assert np.bincount(data.train.y).tolist() == [4, 4, 4]
    assert np.bincount(data.test.y).tolist() == [2, 2, 2]
    assert data.train.x.shape == (12, 3, 84, 84)
    assert not images_of(data.train) & images_of(data.test)
    known = {(c, picture_of(seed).transpose(2, 0, 1).tobytes()) for c, seed in ROWS}
    assert images_of(data.train) | images_of(data.test) <= known


def test_the_split_is_the_same_however_the_rows_are_ordered(tmp_path: Path, write_parts) -> None:
    shuffled = [ROWS[i] for i in np.random.default_rng(0).permutation(len(ROWS))]
    # Divided by class, as few-shot data are, or within each class, and in any order.
    layouts = [
        {"train": ROWS[:7], "validation": ROWS[7:14], "test": ROWS[14:]},
        {"train": shuffled[:12], "validation": shuffled[12:18], "test": shuffled[18:]},
        {"train": ROWS[::-1]},
    ]
    splits = []
    for i, parts in enumerate(layouts):
        data = load(write_parts(tmp_path / f"{i}", parts), tmp_path / "cache")
        splits.append((images_of(data.train), images_of(data.test)))
    assert splits[0] == splits[1] == splits[2]


def test_the_rule_is_the_lowest_hashes_for_test(tmp_path: Path, write_folder) -> None:
    folder = write_folder(tmp_path / "folder", dict.fromkeys(NAMES, 7), size=(84, 84))
    data = load(folder, tmp_path / "cache")
    by_hash = sorted(
        (folder / "n02").iterdir(),
        key=lambda file: hashlib.blake2b(file.read_bytes(), digest_size=16).digest(),
    )
    seeds = {file: 7 + int(file.stem) for file in by_hash}  # n02 holds the pictures 7 to 13
    expected = [picture_of(seeds[file]).transpose(2, 0, 1).tobytes() for file in by_hash]
    assert {image for c, image in images_of(data.test) if c == 1} == set(expected[:2])
    assert {image for c, image in images_of(data.train) if c == 1} == set(expected[2:6])


def test_the_split_is_stored(tmp_path: Path, write_parts) -> None:
    data_dir = write_parts(tmp_path / "data", {"train": ROWS})
    data = load(data_dir, tmp_path / "cache")
    assert len(data.test) == 6
    entries = {
        path.name.partition("-")[0]: read_entry(path)
        for path in (tmp_path / "cache" / "mini-imagenet").iterdir()
    }
    rows = {part: entry.rows for part, entry in entries.items() if entry is not None}
    assert sorted(rows) == ["test", "train"]
    assert len(np.intersect1d(rows["train"], rows["test"])) == 0
    for part, split in (("train", data.train), ("test", data.test)):
        assert [ROWS[row][0] for row in rows[part]] == split.y.tolist()


def test_a_folder_divided_by_class_is_put_together(tmp_path: Path, write_folder) -> None:
    folder = tmp_path / "mini-imagenet"
    for i, (part, name) in enumerate(zip(("train", "val", "test"), NAMES, strict=True)):
        write_folder(folder / part, {name: 7}, first_seed=10 * i)
    data = load(tmp_path, tmp_path / "cache")
    assert data.class_names == tuple(NAMES)
    assert np.bincount(data.train.y).tolist() == [4, 4, 4]


def test_an_image_that_is_there_twice_counts_once(tmp_path: Path, write_parts) -> None:
    data_dir = write_parts(tmp_path / "data", {"train": ROWS, "test": ROWS})
    once = load(data_dir, tmp_path / "cache")
    assert not images_of(once.train) & images_of(once.test)
    with pytest.raises(InputError, match="class 'n01' has 7 different images; the split needs 4"):
        load(data_dir, tmp_path / "cache", test_per_class=4)


def test_the_error_for_missing_data_names_the_places_searched(tmp_path: Path) -> None:
    data = tmp_path / "DATA"
    (data / "cifar10").mkdir(parents=True)
    (data / "cifar10" / "train-00000.parquet").write_bytes(b"of another data set")
    with pytest.raises(InputError, match="there is no mini-imagenet in ") as refused:
        load_dataset("mini-imagenet", data_dir=data, cache_dir=tmp_path / "cache")
    message = str(refused.value)
    for place in (data, data / "mini-imagenet", data / "data", data / "mini-imagenet" / "data"):
        assert f"{place}," in message or f"{place} " in message
    assert not (tmp_path / "cache").exists()
    (data / "mini-imagenet").mkdir()
    with pytest.raises(InputError, match=f"no class folders in {data / 'mini-imagenet'}"):
        load_dataset("mini-imagenet", data_dir=data, cache_dir=tmp_path / "cache")


def test_too_few_images_and_too_few_classes_are_said(tmp_path: Path, write_parts) -> None:
    data_dir = write_parts(tmp_path / "data", {"train": ROWS[:-2]})
    with pytest.raises(InputError, match="class 'n03' has 5 different images"):
        load(data_dir, tmp_path / "cache")
    with pytest.raises(InputError, match="mini-imagenet has 100 classes, but 3 were found"):
        load_dataset("mini-imagenet", data_dir=data_dir, cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match="there is no data directory"):
        load_dataset("mini-imagenet", data_dir=tmp_path / "no", cache_dir=tmp_path / "cache")
