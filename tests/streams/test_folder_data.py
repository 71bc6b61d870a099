import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.streams import Split, disjoint, load_dataset


def images_of(split: Split) -> set[bytes]:
    return {image.tobytes() for image in split.x}


def test_a_folder_of_class_folders_is_divided(tmp_path: Path, write_folder, picture) -> None:
    folder = write_folder(tmp_path / "pets", {"dog": 10, "cat": 5, "emu": 2})
    data = load_dataset(str(folder), cache_dir=tmp_path / "cache")
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog", "emu")
    assert np.bincount(data.train.y).tolist() == [4, 8, 1]
    assert np.bincount(data.test.y).tolist() == [1, 2, 1]
    everything = {picture(i).transpose(2, 0, 1).tobytes() for i in range(17)}
    assert images_of(data.train) | images_of(data.test) == everything
    assert not images_of(data.train) & images_of(data.test)
    # Dogs were written first: seeds 0 to 9.
    dogs = {picture(i).transpose(2, 0, 1).tobytes() for i in range(10)}
    assert images_of(data.train.take(np.flatnonzero(data.train.y == 1))) < dogs


def test_an_added_image_moves_at_most_one_other(tmp_path: Path, write_folder) -> None:
    folder = write_folder(tmp_path / "pets", {"a": 10, "b": 10})
    before = load_dataset(str(folder), cache_dir=tmp_path / "cache")
    old_train, old_test = images_of(before.train), images_of(before.test)
    Image.fromarray(np.zeros((6, 5, 3), np.uint8)).save(folder / "a" / "another.png")
    after = load_dataset(str(folder), cache_dir=tmp_path / "cache")
    assert len(after.train) + len(after.test) == 21
    moved = (old_train - images_of(after.train)) | (old_test - images_of(after.test))
    assert len(moved) <= 1


def test_own_train_and_test_folders_are_kept(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path / "pets" / "train", {"a": 3, "b": 2})
    write_folder(tmp_path / "pets" / "val", {"b": 2}, first_seed=9)
    data = load_dataset(f"folder:{tmp_path / 'pets'}", cache_dir=tmp_path / "cache")
    assert data.train.y.tolist() == [0, 0, 0, 1, 1]
    assert data.test.y.tolist() == [1, 1]  # by name, though it is the only class there


def test_the_test_folder_is_not_opened_before_it_is_used(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path / "pets" / "train", {"a": 3, "b": 2})
    (tmp_path / "pets" / "test" / "a").mkdir(parents=True)
    data = load_dataset(str(tmp_path / "pets"), cache_dir=tmp_path / "cache")
    assert len(data.train) == 5
    with pytest.raises(InputError, match=r"test/a has no images"):
        _ = data.test
    (tmp_path / "pets" / "test" / "a").rmdir()
    (tmp_path / "pets" / "test").rmdir()
    data = load_dataset(str(tmp_path / "pets"), cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match="a folder train but none of test"):
        _ = data.test


def test_images_of_different_sizes_become_32_by_32(tmp_path: Path, write_folder) -> None:
    folder = write_folder(tmp_path / "pets", {"a": 2})
    write_folder(folder, {"b": 2}, size=(9, 9))
    cache = tmp_path / "cache"
    assert load_dataset(str(folder), cache_dir=cache).train.x.shape == (2, 3, 32, 32)
    asked = load_dataset(str(folder), cache_dir=cache, image_size=12)
    assert asked.train.x.shape == (2, 3, 12, 12)
    assert asked.test.x.shape == (2, 3, 12, 12)


def test_a_changed_image_of_the_same_size_is_decoded_again(tmp_path: Path, picture) -> None:
    folder, cache = tmp_path / "pets" / "train" / "a", tmp_path / "cache"
    folder.mkdir(parents=True)
    for seed in (1, 2):
        Image.fromarray(picture(seed)).save(folder / "same.bmp")  # as many bytes each time
        os.utime(folder / "same.bmp", (seed, seed))
        data = load_dataset(str(tmp_path / "pets"), cache_dir=cache)
        assert np.array_equal(data.train.x[0], picture(seed).transpose(2, 0, 1))


def test_three_lines_from_own_data_to_a_stream(tmp_path: Path, write_folder) -> None:
    folder = write_folder(tmp_path / "pets", {"a": 10, "b": 10, "c": 10})
    data = load_dataset(str(folder), cache_dir=tmp_path / "cache")
    stream = disjoint(data.train, classes_per_task=2)
    assert stream.examples == 24
    assert stream[0].x.shape == (10, 3, 6, 5)


def test_images_below_a_class_folder_count_and_hidden_files_do_not(
    tmp_path: Path, write_folder
) -> None:
    folder = write_folder(tmp_path / "pets", {"a": 2, "a/more": 3, ".thumbnails": 2})
    (folder / "a" / ".DS_Store.png").write_bytes(b"junk")
    (folder / "readme.txt").write_text("not a class")
    data = load_dataset(str(folder), cache_dir=tmp_path / "cache")
    assert data.class_names == ("a",)
    assert len(data.train) + len(data.test) == 5


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, write_folder) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        load_dataset(str(tmp_path / "nowhere"), cache_dir=cache)
    (tmp_path / "flat").mkdir()
    with pytest.raises(InputError, match=r"no class folders in .*flat: expected"):
        load_dataset(str(tmp_path / "flat"), cache_dir=cache)
    one = write_folder(tmp_path / "one", {"a": 2, "b": 1})
    with pytest.raises(InputError, match="one/b has 1 image"):
        load_dataset(str(one), cache_dir=cache)
    empty = write_folder(tmp_path / "empty", {"a": 2, "b": 0})
    with pytest.raises(InputError, match=r"class folder .*empty/b has no images"):
        load_dataset(str(empty), cache_dir=cache)
    torn = write_folder(tmp_path / "torn", {"a": 5})
    for file in (torn / "a").iterdir():
        file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(InputError, match=r"cannot read the image .*torn/a/\d\.png") as caught:
        load_dataset(str(torn), cache_dir=cache)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_can_be_skipped(
    tmp_path: Path, write_folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_folder(tmp_path / "pets", {"a": 9, "b": 9})
    clean = load_dataset(str(folder), cache_dir=tmp_path / "cache")
    whole = images_of(clean.train) | images_of(clean.test)
    (folder / "empty").mkdir()
    (folder / "all_torn").mkdir()
    content = (folder / "a" / "0.png").read_bytes()
    torn = ["a/torn.png", "b/torn.png", *(f"all_torn/{i}.png" for i in range(5))]
    for name in torn:
        (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="empty has no images: remove it, or skip it"):
        load_dataset(str(folder), cache_dir=tmp_path / "cache")
    for _ in range(2):  # decoded, then from the cache
        caplog.clear()
        with caplog.at_level("INFO", "deepccg.streams"):
            data = load_dataset(str(folder), cache_dir=tmp_path / "cache", skip_unreadable=True)
            everything = images_of(data.train) | images_of(data.test)
        assert data.class_names == ("a", "b")
        assert everything == whole
        told = [line for line in caplog.messages if line.startswith("skipped in pets (")]
        assert len(told) == 2  # for each part
        assert all(any(name in line for line in told) for name in torn)
        assert all("the class folder empty" in line for line in told)


def test_only_images_of_a_folder_can_be_skipped() -> None:
    with pytest.raises(InputError, match="only images of a folder can be skipped"):
        load_dataset("digits", skip_unreadable=True)
