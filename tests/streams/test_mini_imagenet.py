import hashlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.streams import Dataset, Split, build_stream, load_dataset
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


def write_classes(root: Path, classes: list[list[int]]) -> Path:
    """A folder for each class with a file for each picture seed, also for one that comes again."""
    for name, seeds in zip(NAMES, classes, strict=True):
        (root / name).mkdir(parents=True)
        for i, seed in enumerate(seeds):
            Image.fromarray(picture_of(seed)).save(root / name / f"{i}.png")
    return root


def in_order_of_hash(seeds: list[int]) -> list[int]:
    def digest(seed: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(picture_of(seed)).save(file, "png")
        return hashlib.blake2b(file.getvalue(), digest_size=16).digest()

    return sorted(seeds, key=digest)


def seeds_of(split: Split, known: int = 100) -> list[list[int]]:
    """The picture seeds of each class, ascending."""
    seeds = {picture_of(seed).transpose(2, 0, 1).tobytes(): seed for seed in range(known)}
    found = sorted((int(c), seeds[x.tobytes()]) for x, c in zip(split.x, split.y, strict=True))
    return [[seed for c, seed in found if c == label] for label in range(len(NAMES))]


@pytest.mark.parametrize("place", [0, 1, 2, 4], ids=["test", "last of test", "train", "end"])
def test_an_image_that_is_twice_in_its_class_counts_once(tmp_path: Path, place: int) -> None:
    first = in_order_of_hash([0, 1, 2, 3, 4])
    data_dir = write_classes(
        tmp_path / "data", [[*range(5), first[place]], [*range(10, 16)], [*range(20, 26)]]
    )
    told = (
        "left out of mini-imagenet: repeated images: 1; images in two classes: 0 "
        "(classes with fewer than 4 training images: 1, the smallest with 3)"
    )
    with pytest.warns(UserWarning, match=re.escape(told)):
        data = load(data_dir, tmp_path / "cache")
    assert seeds_of(data.test)[0] == sorted(first[:2])
    assert seeds_of(data.train)[0] == sorted(first[2:])
    assert [len(seeds) for seeds in seeds_of(data.test)] == [2, 2, 2]
    assert [len(seeds) for seeds in seeds_of(data.train)] == [3, 4, 4]


@pytest.mark.parametrize("first_side", ["test", "train"])
@pytest.mark.parametrize("second_side", ["test", "train"])
def test_an_image_in_two_classes_is_in_neither(
    tmp_path: Path, first_side: str, second_side: str
) -> None:
    order = in_order_of_hash(list(range(21)))
    one, others = order[10], {"train": order[:10], "test": order[11:]}  # lowest hashes are test
    first, second = others[first_side][:5], others[second_side][5:]
    data_dir = write_classes(tmp_path / "data", [[*first, one], [one, *second], [*range(30, 36)]])
    told = r"repeated images: 0; images in two classes: 2 \(.* images: 2, the smallest with 3\)"
    with pytest.warns(UserWarning, match=told):
        data = load(data_dir, tmp_path / "cache")
    train, test = seeds_of(data.train), seeds_of(data.test)
    assert sorted(train[0] + test[0]) == sorted(first)
    assert sorted(train[1] + test[1]) == sorted(second)
    assert [len(seeds) for seeds in test] == [2, 2, 2]


def test_the_split_of_repeated_images_is_that_of_no_order(tmp_path: Path, write_parts) -> None:
    again = [*ROWS, (0, 3), (1, 14), (1, 14), (2, 12), (0, 21)]
    layouts = [
        {"train": again},
        {"train": again[::-1]},
        {"train": again[::2], "validation": again[1::4], "test": again[3::4]},
    ]
    splits = []
    for i, parts in enumerate(layouts):
        with pytest.warns(UserWarning, match="repeated images: 3; images in two classes: 4"):
            data = load(write_parts(tmp_path / f"{i}", parts), tmp_path / "cache")
        splits.append((seeds_of(data.train), seeds_of(data.test)))
    assert splits[0] == splits[1] == splits[2]
    images = [seed for part in splits[0] for seeds in part for seed in seeds]
    assert len(set(images)) == len(images) == 18
    assert not {12, 21} & set(images)


def test_what_was_left_out_is_told_once(
    tmp_path: Path, write_parts, recwarn: pytest.WarningsRecorder
) -> None:
    data_dir = write_parts(tmp_path / "data", {"train": [*ROWS, ROWS[0]]})
    assert len(load(data_dir, tmp_path / "cache").test) == 6
    assert len(load(data_dir, tmp_path / "cache").test) == 6
    assert ["left out" in str(each.message) for each in recwarn].count(True) == 1


def test_copies_do_not_make_up_for_missing_images(tmp_path: Path, write_parts) -> None:
    data_dir = write_parts(tmp_path / "data", {"train": ROWS, "test": ROWS})
    for counts in ({"test_per_class": 7, "train_per_class": 1}, {"train_per_class": 13}):
        with pytest.raises(InputError, match="class 'n01' has 7 different images; the split needs"):
            load(data_dir, tmp_path / "cache", **counts)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kind", ["disjoint", "shifting-window"])
def test_a_class_with_fewer_training_images_is_streamed(tmp_path: Path, kind: str) -> None:
    data_dir = write_classes(
        tmp_path / "data", [[*range(5), 0], [*range(10, 16)], [*range(20, 26)]]
    )
    with pytest.warns(UserWarning, match="the smallest with 3"):
        data = load(data_dir, tmp_path / "cache")
    size = {"classes_per_task": 1, "examples_per_class": 4, "batch_size": 2}
    stream = build_stream(kind, data.train, **size)
    read = np.concatenate([stream.indices(step) for step in range(len(stream))])
    counts = np.bincount(data.train.y[read]).tolist()
    assert counts == ([3, 4, 4] if kind == "disjoint" else [3, 3, 3])


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
