import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deepccg.core import InputError
from deepccg.streams import available, load_dataset


def test_digits_are_the_real_digits() -> None:
    from sklearn.datasets import load_digits

    data = load_dataset("digits")
    assert data.class_names == tuple("0123456789")
    assert data.train.x.dtype == np.uint8
    assert data.train.x.shape[1:] == (1, 8, 8)
    assert np.bincount(data.train.y).tolist() == [140] * 10
    values, labels = load_digits(return_X_y=True)
    known = sorted((label, *map(int, row)) for row, label in zip(values, labels, strict=True))
    x = np.concatenate([data.train.x, data.test.x]).reshape(-1, 64)
    y = np.concatenate([data.train.y, data.test.y])
    back = np.rint(x * (16 / 255)).astype(int)
    assert sorted((label, *row) for row, label in zip(back.tolist(), y, strict=True)) == known
    assert set(np.unique(x)) == {round(v * 255 / 16) for v in range(17)}


def test_the_split_of_digits_never_changes() -> None:
    data = load_dataset("digits")
    assert data.test.y[:12].tolist() == [2, 5, 4, 9, 0, 7, 9, 5, 7, 7, 2, 3]
    assert int(data.train.x.sum()) == 6_969_041


def test_available_describes_digits_correctly() -> None:
    infos = {info.name: info for info in available()}
    assert list(infos) == ["digits", "cifar10", "cifar100", "mini-imagenet"]
    data, info = load_dataset("digits"), infos["digits"]
    assert (info.train, info.test, info.classes) == (len(data.train), len(data.test), 10)
    assert info.image_shape == data.train.x.shape[1:]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-10", r"unknown data set 'cifar-10' \(did you mean cifar10\?\): choose digits"),
        ("zzz", "unknown data set 'zzz': choose digits, cifar10, cifar100, mini-imagenet"),
        ("hf:", "write hf:owner/name"),
        ("hf:a/b/c", "write hf:owner/name"),
        ("no/such/folder", "there is no folder no/such/folder"),
    ],
)
def test_unknown_names_are_explained(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset(name, cache_dir=tmp_path)


def test_impossible_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        load_dataset("cifar10", cache_dir=tmp_path, image_size=0)
    with pytest.raises(InputError, match="8 x 8"):
        load_dataset("digits", image_size=16)


@pytest.mark.slow
def test_an_unreachable_hub_is_one_clear_line(tmp_path: Path) -> None:
    names = ["cifar10", "mini-imagenet", "hf:owner/name:config"]
    script = (
        "import sys\n"
        "from deepccg.core import InputError\n"
        "from deepccg.streams import load_dataset\n"
        "for name in sys.argv[2:]:\n"
        "    try:\n"
        "        load_dataset(name, cache_dir=sys.argv[1])\n"
        "    except InputError as error:\n"
        "        print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache"), *names],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")},
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(names)
    for line, repository in zip(
        lines, ["uoft-cs/cifar10", "timm/mini-imagenet", "owner/name"], strict=True
    ):
        assert "the hub is not reachable" in line
        assert repository in line
        assert "--data-dir DATA" in line


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where owner/name is found locally: the library looks there before the network."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub-cache")
    return tmp_path


def test_a_hub_data_set_is_the_same_as_its_files(hub: Path, write_parquet) -> None:
    data = hub / "owner" / "pets" / "data"
    names = ["cat", "dog"]
    write_parquet(data / "train-00000-of-00001.parquet", [0, 1, 1] * 100, names=names, image="pic")
    write_parquet(data / "validation-00000-of-00001.parquet", [1, 0], names=names, image="pic")
    remote = load_dataset("hf:owner/pets", cache_dir=hub / "cache")
    local = load_dataset("hf:owner/pets", data_dir=hub / "owner", cache_dir=hub / "cache")
    assert remote.class_names == local.class_names == ("cat", "dog")
    assert remote.train.x.shape == (300, 3, 6, 5)
    for one, other in ((remote.train, local.train), (remote.test, local.test)):
        assert np.array_equal(one.x, other.x)
        assert one.y.tolist() == other.y.tolist()


def test_a_hub_data_set_of_image_files(hub: Path, write_folder, picture) -> None:
    # The library then keeps paths, not bytes, in the image column.
    write_folder(hub / "owner" / "files" / "train", {"cat": 2, "dog": 2})
    write_folder(hub / "owner" / "files" / "test", {"cat": 1, "dog": 1}, first_seed=7)
    data = load_dataset("hf:owner/files", cache_dir=hub / "cache")
    assert data.class_names == ("cat", "dog")
    assert np.array_equal(data.train.x[3], picture(3).transpose(2, 0, 1))
    assert np.array_equal(data.test.x[1], picture(8).transpose(2, 0, 1))


def test_a_hub_data_set_without_a_test_part_says_so_on_use(hub: Path, write_parquet) -> None:
    write_parquet(hub / "owner" / "half" / "train.parquet", [0, 1], names=["a", "b"])
    data = load_dataset("hf:owner/half", cache_dir=hub / "cache")
    assert len(data.train) == 2
    with pytest.raises(InputError, match="owner/half has no test part; it has train"):
        _ = data.test


def test_a_damaged_hub_data_set_is_one_clear_line(hub: Path) -> None:
    (hub / "owner" / "torn").mkdir(parents=True)
    (hub / "owner" / "torn" / "train.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(InputError, match="owner/torn cannot be loaded") as caught:
        load_dataset("hf:owner/torn", cache_dir=hub / "cache")
    assert "\n" not in str(caught.value)
