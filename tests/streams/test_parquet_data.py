import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.streams import available, load_dataset

NAMES = [f"c{i}" for i in range(10)]
LABELS = [*range(10), 3]


@pytest.fixture
def cifar(tmp_path: Path, write_parquet) -> Path:
    """A cifar10 of eleven training and ten test images."""
    data = tmp_path / "data"
    write_parquet(data / "cifar10" / "train.parquet", LABELS, names=NAMES, size=(32, 32))
    write_parquet(
        data / "cifar10" / "test.parquet", LABELS[:10], names=NAMES, size=(32, 32), first_seed=50
    )
    return data


def test_pixels_labels_and_names(cifar: Path, tmp_path: Path, picture) -> None:
    data = load_dataset("cifar10", data_dir=cifar, cache_dir=tmp_path / "cache")
    assert data.class_names == tuple(NAMES)
    assert (data.name, data.n_classes) == ("cifar10", 10)
    assert data.train.y.tolist() == LABELS
    assert data.train.x.shape == (11, 3, 32, 32)
    for i in range(11):
        assert np.array_equal(data.train.x[i], picture(i, (32, 32)).transpose(2, 0, 1))
    assert np.array_equal(data.test.x[4], picture(54, (32, 32)).transpose(2, 0, 1))


def test_height_and_width_keep_their_places(tmp_path: Path, write_parquet, picture) -> None:
    for part in ("train", "test"):
        write_parquet(tmp_path / f"{part}.parquet", [0, 1], names=["a", "b"], size=(6, 5))
    data = load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert data.train.x.shape == (2, 3, 6, 5)
    assert np.array_equal(data.train.x[1], picture(1).transpose(2, 0, 1))


def test_the_same_through_the_hubs_layout(tmp_path: Path, write_parquet) -> None:
    # As the hub lays out its repositories: a folder per configuration, and shards.
    folder = tmp_path / "plain_text"
    write_parquet(folder / "train-00000-of-00002.parquet", LABELS[:6], names=NAMES)
    write_parquet(folder / "train-00001-of-00002.parquet", LABELS[6:], names=NAMES, first_seed=6)
    whole = write_parquet(tmp_path / "whole" / "train.parquet", LABELS, names=NAMES)
    cache = tmp_path / "cache"
    shards = load_dataset("cifar10", data_dir=tmp_path, cache_dir=cache)
    single = load_dataset("cifar10", data_dir=whole.parent, cache_dir=cache)
    assert shards.train.y.tolist() == LABELS
    assert np.array_equal(shards.train.x, single.train.x)


def test_the_second_start_neither_reads_the_source_nor_imports_what_decodes(
    cifar: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = load_dataset("cifar10", data_dir=cifar, cache_dir=cache)
    total = int(first.train.x.sum()) + int(first.test.x.sum())
    for file in cifar.rglob("*.parquet"):  # unreadable, with the same size and time
        stat = file.stat()
        file.write_bytes(b"\0" * stat.st_size)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    script = (
        "import sys\n"
        "from deepccg.streams import load_dataset\n"
        "data = load_dataset('cifar10', data_dir=sys.argv[1], cache_dir=sys.argv[2])\n"
        "print(int(data.train.x.sum()) + int(data.test.x.sum()))\n"
        "heavy = {'datasets', 'pyarrow', 'PIL', 'sklearn', 'matplotlib', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(cifar), str(cache)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == [str(total), "[]"]


def test_changed_data_are_decoded_again(cifar: Path, tmp_path: Path, write_parquet) -> None:
    cache = tmp_path / "cache"
    before = load_dataset("cifar10", data_dir=cifar, cache_dir=cache).train
    file = cifar / "cifar10" / "train.parquet"
    write_parquet(file, LABELS[::-1], names=NAMES, size=(32, 32), first_seed=7)
    after = load_dataset("cifar10", data_dir=cifar, cache_dir=cache).train
    assert after.y.tolist() == LABELS[::-1]
    assert not np.array_equal(before.x, after.x)


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_the_test_part_is_not_opened_before_it_is_used(
    cifar: Path, tmp_path: Path, damage: str
) -> None:
    file = cifar / "cifar10" / "test.parquet"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-100])
    data = load_dataset("cifar10", data_dir=cifar, cache_dir=tmp_path / "cache")
    assert len(data.train) == 11
    with pytest.raises(InputError, match=r"test\.parquet is not a whole|no test\*\.parquet"):
        _ = data.test


@pytest.mark.parametrize("keep", [0, 3, 500, -1, -100])
def test_a_truncated_file_is_one_clear_line(cifar: Path, tmp_path: Path, keep: int) -> None:
    file = cifar / "cifar10" / "train.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"train\.parquet is not a whole parquet file") as caught:
        load_dataset("cifar10", data_dir=cifar, cache_dir=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_damage_inside_a_file_is_one_clear_line(cifar: Path, tmp_path: Path) -> None:
    file = cifar / "cifar10" / "train.parquet"
    content = bytearray(file.read_bytes())
    content[4:2000] = b"\xff" * 1996  # the footer is whole, the pages are not
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"train\.parquet|cannot read the image") as caught:
        load_dataset("cifar10", data_dir=cifar, cache_dir=tmp_path / "cache")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": "picture"}, "no image column 'img'; its columns are picture, label"),
        ({"label": "coarse_label"}, "no label column 'label'; its columns are img, coarse_label"),
    ],
)
def test_a_missing_column_is_named(tmp_path: Path, write_parquet, columns, message) -> None:
    write_parquet(tmp_path / "train.parquet", LABELS, names=NAMES, **columns)
    with pytest.raises(InputError, match=message):
        load_dataset("cifar10", data_dir=tmp_path, cache_dir=tmp_path / "cache")


def test_cifar100_uses_the_fine_labels(tmp_path: Path, write_parquet) -> None:
    names = [f"fine{i}" for i in range(100)]
    write_parquet(
        tmp_path / "cifar100" / "train.parquet", [*range(100)], names=names, label="fine_label"
    )
    data = load_dataset("cifar100", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert data.class_names[99] == "fine99"
    assert data.train.x.shape == (100, 3, 32, 32)


def test_another_data_set_is_not_taken_for_the_named_one(tmp_path: Path, write_parquet) -> None:
    write_parquet(tmp_path / "train.parquet", [0, 1], names=["a", "b"])
    with pytest.raises(InputError, match="cifar10 has 10 classes, but 2 were found"):
        load_dataset("cifar10", data_dir=tmp_path, cache_dir=tmp_path / "cache")


def test_parts_of_two_data_sets_are_not_mixed(cifar: Path, tmp_path: Path, write_parquet) -> None:
    for part in ("train", "test"):  # beside the folder cifar10, another data set
        write_parquet(cifar / f"{part}.parquet", LABELS[::-1], names=NAMES, size=(32, 32))
    data = load_dataset("cifar10", data_dir=cifar, cache_dir=tmp_path / "cache")
    assert data.train.y.tolist() == LABELS
    (cifar / "cifar10" / "test.parquet").unlink()
    with pytest.raises(InputError, match=r"no test\*\.parquet in .*cifar10"):
        _ = data.test


def test_a_class_without_training_images_is_named(tmp_path: Path, write_parquet) -> None:
    write_parquet(tmp_path / "train.parquet", LABELS[:7], names=NAMES)
    with pytest.raises(InputError, match="no training images of the class 'c7'"):
        load_dataset("cifar10", data_dir=tmp_path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("label", [-1, None])
def test_unlabelled_rows_are_refused(tmp_path: Path, write_parquet, label) -> None:
    write_parquet(tmp_path / "train.parquet", [0, 1, label], names=["a", "b"])
    with pytest.raises(InputError, match=f"row 2 of train.parquet has no label .*is {label}"):
        load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("content", [b"", b"not an image", "truncated"])
def test_an_unreadable_image_is_named_and_leaves_nothing(
    tmp_path: Path, write_parquet, content
) -> None:
    import pyarrow
    import pyarrow.parquet

    file = write_parquet(tmp_path / "train.parquet", [0, 1], names=["a", "b"], size=(40, 40))
    table = pyarrow.parquet.read_table(file)
    cells = table.column("img").to_pylist()
    cells[1]["bytes"] = cells[1]["bytes"][:2000] if content == "truncated" else content
    image = pyarrow.array(cells, type=table.schema.field("img").type)
    pyarrow.parquet.write_table(table.set_column(0, table.schema.field("img"), image), file)
    cache = tmp_path / "cache"
    with pytest.raises(InputError, match=r"cannot read the image in row 1 of train\.parquet"):
        load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=cache)
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("column", ["img", "label"])
@pytest.mark.parametrize("shard", ["train-0.parquet", "train-1.parquet"])
def test_a_column_that_is_there_twice_is_named(
    tmp_path: Path, write_parquet, column: str, shard: str
) -> None:
    import pyarrow.parquet

    for name in ("train-0.parquet", "train-1.parquet"):
        write_parquet(tmp_path / name, LABELS, names=NAMES)
    table = pyarrow.parquet.read_table(tmp_path / shard)
    table = table.append_column(table.schema.field(column), table.column(column))
    pyarrow.parquet.write_table(table, tmp_path / shard)
    with pytest.raises(InputError, match=f"has 2 columns '{column}': remove or rename") as caught:
        load_dataset("cifar10", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert shard in str(caught.value)


@pytest.mark.parametrize(
    ("train", "test", "names", "y_test"),
    [
        (["emu", "cat"], ["emu", "emu"], ("cat", "emu"), [1, 1]),
        ([30, 4, 7], [30, 7], ("4", "7", "30"), [2, 1]),
    ],
)
def test_plain_labels_are_matched_by_name(
    tmp_path: Path, write_parquet, train, test, names, y_test
) -> None:
    write_parquet(tmp_path / "train.parquet", train)
    write_parquet(tmp_path / "validation.parquet", test)
    data = load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert data.class_names == names
    assert data.test.y.tolist() == y_test


def test_test_images_take_the_size_of_training_images(tmp_path: Path, write_parquet) -> None:
    write_parquet(tmp_path / "train.parquet", [0, 1], names=["a", "b"], size=(6, 5))
    write_parquet(tmp_path / "test.parquet", [0, 1], names=["a", "b"], size=(9, 9))
    data = load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert data.test.x.shape == (2, 3, 6, 5)
    resized = load_dataset("hf:me/mine", tmp_path, tmp_path / "cache", image_size=4)
    assert resized.train.x.shape == (2, 3, 4, 4)


def test_several_label_columns_are_refused_by_name(tmp_path: Path) -> None:
    import datasets

    label = datasets.ClassLabel(names=["a"])
    features = datasets.Features({"image": datasets.Image(), "colour": label, "shape": label})
    rows = {"image": [Image.new("RGB", (2, 2))], "colour": [0], "shape": [0]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(InputError, match=r"several label columns.*image, colour, shape"):
        load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=tmp_path / "cache")


def test_a_table_without_the_hubs_metadata(tmp_path: Path, write_parquet, picture) -> None:
    import pyarrow.parquet

    file = write_parquet(tmp_path / "train.parquet", [1, 0, 5], image="image")
    table = pyarrow.parquet.read_table(file).replace_schema_metadata(None)
    pyarrow.parquet.write_table(table, file)
    data = load_dataset("hf:me/mine", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert data.class_names == ("0", "1", "5")
    assert np.array_equal(data.train.x[2], picture(2).transpose(2, 0, 1))


def test_a_wrong_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no data directory .*nowhere"):
        load_dataset("cifar10", data_dir=tmp_path / "nowhere", cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match=r"no train\*\.parquet for cifar10; looked in"):
        load_dataset("cifar10", data_dir=tmp_path, cache_dir=tmp_path / "cache")


def test_no_path_is_kept_where_it_could_be_written_down(cifar: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    data = load_dataset("cifar10", data_dir=cifar, cache_dir=cache)
    assert str(tmp_path) not in repr(data) + repr(data.train)
    for file in cache.rglob("meta.json"):
        assert str(tmp_path) not in file.read_text()
    assert type(data.train.x) is np.ndarray  # a memory map would carry its file name


def test_available_says_what_is_cached(cifar: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert all(info.cached_at is None for info in available(cache))
    data = load_dataset("cifar10", data_dir=cifar, cache_dir=cache)
    assert len(data.train)
    assert all(info.cached_at is None for info in available(cache, data_dir=cifar))  # half of it
    assert len(data.test)
    cached = {info.name: info.cached_at for info in available(cache, data_dir=cifar)}
    assert cached["cifar10"] == cache / "cifar10"
    assert cached["cifar100"] is None
    # A run without --data-dir would ask the hub, whatever these files were.
    assert all(info.cached_at is None for info in available(cache))
