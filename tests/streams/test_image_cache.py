import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepccg.core import InputError
from deepccg.streams import cache, default_cache_dir, image_files, load_dataset, read_images
from deepccg.streams.cache import read_entry, safe_name, write_entry
from deepccg.streams.images import ImageSource, concatenate


def encode(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture
def source(picture) -> ImageSource:
    def read(rows: np.ndarray) -> Iterator[tuple[str, bytes]]:
        for row in rows:
            yield f"number {row}", encode(picture(row))

    return ImageSource(("a", "b"), np.array([0, 1, 1]), np.array([2, 5, 6]), read)


def test_what_is_written_is_read_back(tmp_path: Path, source: ImageSource, picture) -> None:
    written = write_entry(tmp_path / "deep" / "entry", source, (6, 5))
    entry = read_entry(tmp_path / "deep" / "entry")
    assert entry is not None
    for each in (written, entry):
        assert each.names == ("a", "b")
        assert each.y.tolist() == [0, 1, 1]
        assert each.rows.tolist() == [2, 5, 6]
        assert each.x.shape[2:] == (6, 5)
        expected = np.stack([picture(row).transpose(2, 0, 1) for row in (2, 5, 6)])
        assert np.array_equal(each.x, expected)
        assert not each.x.flags.writeable
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["entry"]


def test_nothing_there_is_no_entry(tmp_path: Path) -> None:
    assert read_entry(tmp_path / "nothing") is None


@pytest.mark.parametrize("name", ["x.npy", "y.npy", "rows.npy", "meta.json"])
@pytest.mark.parametrize("damage", ["truncated", "longer", "empty", "missing"])
def test_a_damaged_entry_is_noticed_and_written_again(
    tmp_path: Path, source: ImageSource, name: str, damage: str
) -> None:
    entry = tmp_path / "entry"
    before = write_entry(entry, source, (6, 5)).x.copy()
    file = entry / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        damaged = {"truncated": content[:-7], "longer": content + b"junk!!", "empty": b""}
        file.write_bytes(damaged[damage])
    assert read_entry(entry) is None
    assert np.array_equal(write_entry(entry, source, (6, 5)).x, before)
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


@pytest.mark.parametrize("name", ["x.npy", "y.npy", "rows.npy"])
def test_changed_numbers_of_the_same_size_are_noticed(
    tmp_path: Path, source: ImageSource, name: str
) -> None:
    entry = tmp_path / "entry"
    before = write_entry(entry, source, (6, 5)).x.copy()
    array = np.load(entry / name, mmap_mode="r+")
    array.flat[-1] ^= 1
    array.flush()
    assert read_entry(entry) is None
    assert np.array_equal(write_entry(entry, source, (6, 5)).x, before)


def test_a_copied_entry_is_read_once_and_then_known(
    tmp_path: Path, source: ImageSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entry(tmp_path / "entry", source, (6, 5))
    shutil.copytree(tmp_path / "entry", tmp_path / "copy", copy_function=shutil.copyfile)
    looked_at, digest = [], cache._digest

    def look(file: Path) -> str:
        looked_at.append(file.name)
        return digest(file)

    monkeypatch.setattr(cache, "_digest", look)
    for _ in range(2):
        assert read_entry(tmp_path / "entry") is not None
        assert read_entry(tmp_path / "copy") is not None
    assert sorted(looked_at) == ["rows.npy", "x.npy", "y.npy"]


def test_an_entry_of_a_version_without_digests_is_read(tmp_path: Path, source: ImageSource) -> None:
    write_entry(tmp_path / "entry", source, (6, 5))
    file = tmp_path / "entry" / "meta.json"
    meta = json.loads(file.read_text())
    for array in meta["arrays"].values():
        del array["digest"], array["mtime_ns"]
    file.write_text(json.dumps(meta))
    os.utime(tmp_path / "entry" / "x.npy", (1, 1))
    assert read_entry(tmp_path / "entry") is not None


@pytest.mark.parametrize("meta", ["[]", "{}", '{"names": 3, "arrays": {}}', '{"arrays": null}'])
def test_foreign_metadata_is_no_entry(tmp_path: Path, source: ImageSource, meta: str) -> None:
    write_entry(tmp_path / "entry", source, (6, 5))
    (tmp_path / "entry" / "meta.json").write_text(meta)
    assert read_entry(tmp_path / "entry") is None


def test_an_array_of_another_shape_is_no_entry(tmp_path: Path, source: ImageSource) -> None:
    write_entry(tmp_path / "entry", source, (6, 5))
    file = tmp_path / "entry" / "meta.json"
    meta = json.loads(file.read_text())
    meta["arrays"]["x"]["shape"] = [3, 3, 5, 6]
    file.write_text(json.dumps(meta))
    assert read_entry(tmp_path / "entry") is None


def test_the_loser_of_a_race_uses_what_the_winner_wrote(
    tmp_path: Path, source: ImageSource
) -> None:
    entry = tmp_path / "entry"

    def slow_read(rows: np.ndarray) -> Iterator[tuple[str, bytes]]:
        write_entry(entry, source, (6, 5))  # another process is faster
        (entry / "winner").touch()
        yield from source.read(rows)

    slow = ImageSource(source.names, source.y, source.rows, slow_read)
    assert np.array_equal(write_entry(entry, slow, (6, 5)).y, source.y)
    assert (entry / "winner").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


def test_many_at_once(tmp_path: Path, write_folder) -> None:
    folder = write_folder(tmp_path / "pets", {"cat": 5, "dog": 5})

    def total(_: int) -> int:
        data = load_dataset(str(folder), cache_dir=tmp_path / "cache")
        return int(data.train.x.sum()) + int(data.test.x.sum())

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(total, range(8)))) == 1
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, source: ImageSource) -> None:
    def broken_read(rows: np.ndarray) -> Iterator[tuple[str, bytes]]:
        yield next(source.read(rows))
        yield "the second", b"nonsense"

    broken = ImageSource(source.names, source.y, source.rows, broken_read)
    with pytest.raises(InputError, match="cannot read the image the second: not an image"):
        write_entry(tmp_path / "entry", broken, (6, 5))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, source: ImageSource
) -> None:
    program = (
        "import sys, time; from pathlib import Path; import numpy as np\n"
        "from deepccg.streams.cache import write_entry\n"
        "from deepccg.streams.images import ImageSource\n"
        "def read(rows):\n"
        "    print('reading', flush=True); time.sleep(600)\n"
        "    yield 'never', b''\n"
        "source = ImageSource(('a',), np.array([0]), np.array([0]), read)\n"
        "write_entry(Path(sys.argv[1]) / 'other', source, (6, 5))\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        write_entry(tmp_path / "entry", source, (6, 5))
        assert len(list(tmp_path.iterdir())) == 2  # what is in use stays
        process.send_signal(signal.SIGKILL)
    shutil.rmtree(tmp_path / "entry")
    assert len(list(tmp_path.glob(".*.tmp/x.npy"))) == 1
    write_entry(tmp_path / "entry", source, (6, 5))
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


def test_a_cache_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, source: ImageSource
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write the cache .*DEEPCCG_CACHE"):
        write_entry(tmp_path / "file" / "entry", source, (6, 5))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "mine"
    monkeypatch.delenv("DEEPCCG_CACHE")
    assert default_cache_dir() == tmp_path / "xdg" / "deepccg"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "deepccg"


@pytest.mark.parametrize("name", ["hf:a/b", "../../etc", "..", "", "folder name", "ünï"])
def test_any_name_is_a_safe_directory_name(name: str) -> None:
    safe = safe_name(name)
    assert Path(safe).name == safe
    assert safe not in ("", ".", "..")


def test_image_files_are_read_as_a_data_set_would_hold_them(
    tmp_path: Path, write_folder, picture
) -> None:
    folder = write_folder(tmp_path / "new", {"": 3})
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden.png").write_bytes(b"")
    files = image_files(folder)
    assert [file.name for file in files] == ["0.png", "1.png", "2.png"]
    pixels = read_images(files, (3, 6, 5))
    assert np.array_equal(pixels[1], picture(1).transpose(2, 0, 1))
    grey = read_images(files, (1, 8, 8))
    assert grey.shape == (3, 1, 8, 8)
    shutil.copy(folder / "notes.txt", folder / "fake.png")
    with pytest.raises(InputError, match=r"cannot read the image .*fake\.png: not an image"):
        read_images(image_files(folder), (3, 6, 5))
    with pytest.raises(InputError, match=r"cannot read the image .*gone\.png: No such file"):
        read_images([folder / "gone.png"], (3, 6, 5))
    with pytest.raises(InputError, match="not 2 channels"):
        read_images(files, (2, 6, 5))


def test_sources_put_together_match_classes_by_name(source: ImageSource) -> None:
    renamed = replace(source, names=("b", "c"))
    both = concatenate([source, renamed.take(np.array([1, 2]))])
    assert both.names == ("a", "b", "c")
    assert both.y.tolist() == [0, 1, 1, 2, 2]
    where = [text for text, _ in both.take(np.array([0, 2, 4]))]
    assert where == ["number 2", "number 6", "number 6"]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_image_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    Image.new(mode, (5, 6)).save(tmp_path / f"image.{suffix}")
    assert read_images([tmp_path / f"image.{suffix}"], (3, 6, 5)).shape == (1, 3, 6, 5)
