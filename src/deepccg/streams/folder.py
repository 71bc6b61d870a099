"""A folder of class folders: ``FOLDER/<class>/<image>``, or ``FOLDER/train/<class>/<image>``."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from deepccg.core import InputError, is_utf8
from deepccg.streams.arrays import IntArray
from deepccg.streams.images import ImageSource, read_file, readable_files

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
_TEST_FOLDERS = ("test", "validation", "valid", "val")
_TEST_SHARE = 0.2


def image_files(folder: Path) -> list[Path]:
    """Return all image files below ``folder`` in a fixed order, without hidden ones."""

    def hidden(file: Path) -> bool:
        return any(part.startswith(".") for part in file.relative_to(folder).parts)

    files = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(file for file in files if file.is_file() and not hidden(file))


def is_folder(path: Path) -> bool:
    """Whether the folder exists; False also for a name that no folder can have."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_divided(folder: Path) -> bool:
    """Whether the folder has its own ``train`` folder of class folders."""
    train = folder / "train"
    return train.is_dir() and any(child.is_dir() for child in train.iterdir())


def part_files(folder: Path, part: str, *, skip_empty: bool = False) -> dict[str, list[Path]]:
    """Return the files of each class, for the part ``train`` or ``test`` of a folder.

    A folder without its own ``train`` is divided here: of each class, the fifth of its images
    whose names hash lowest is the test part. So the division needs no seed, is the same on every
    machine, and an added image moves at most one other.
    """
    if not is_folder(folder):
        raise InputError(f"there is no folder {folder}")
    if is_divided(folder):
        names = ("train",) if part == "train" else _TEST_FOLDERS
        found = [folder / name for name in names if (folder / name).is_dir()]
        if not found:
            raise InputError(f"{folder} has a folder train but none of {', '.join(names)}")
        return class_files(found[0], skip_empty=skip_empty)
    return {
        name: _divide(folder / name, files)[part == "test"] if files else []
        for name, files in class_files(folder, skip_empty=skip_empty).items()
    }


def class_files(folder: Path, *, skip_empty: bool = False) -> dict[str, list[Path]]:
    """Return the image files of each class folder, classes and files in order of name.

    A class folder without images is refused, unless ``skip_empty``.
    """
    children = sorted(child for child in folder.iterdir() if child.is_dir())
    folders = [child for child in children if not child.name.startswith(".")]
    if not folders:
        raise InputError(f"no class folders in {folder}: expected {folder}/<class>/<image>")
    classes = {child.name: image_files(child) for child in folders}
    for name, files in classes.items():
        if not is_utf8(name):  # unlike those of images, the names of classes are written down
            raise InputError(f"the class folder {name!r} in {folder} is not UTF-8: rename it")
        if not files and not skip_empty:
            raise InputError(
                f"the class folder {folder / name} has no images: remove it, or skip it with "
                f"--skip-unreadable"
            )
    return classes


def readable_source(classes: dict[str, list[Path]]) -> ImageSource:
    """Return those images of these classes that can be read; what cannot is ``skipped``."""
    good: dict[str, list[Path]] = {}
    skipped = []
    for name, files in classes.items():
        readable, unreadable = readable_files(files)
        skipped += [f"{name}/{file.name}" for file in unreadable]
        if readable:
            good[name] = readable
        else:
            skipped.append(f"the class folder {name}, which has no image that can be read")
    return replace(folder_source(good), skipped=tuple(skipped))


def folder_source(classes: dict[str, list[Path]]) -> ImageSource:
    """Return the images of these classes."""
    files = [file for members in classes.values() for file in members]
    y = np.repeat(np.arange(len(classes)), [len(members) for members in classes.values()])

    def read(rows: IntArray) -> Iterator[tuple[str, bytes]]:
        for row in rows:
            yield str(files[row]), read_file(files[row])

    return ImageSource(tuple(classes), y.astype(np.int64), np.arange(len(y)), read)


def _divide(folder: Path, files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    if len(files) < 2:
        raise InputError(f"the class folder {folder} has 1 image; training and test need one each")

    def digest(file: Path) -> bytes:
        path = file.relative_to(folder).as_posix()
        name = path.encode(errors="surrogateescape")  # as it is on disk, UTF-8 or not
        return hashlib.blake2b(name, digest_size=16).digest()

    n_test = max(1, round(_TEST_SHARE * len(files)))
    chosen = set(sorted(files, key=digest)[:n_test])
    return [f for f in files if f not in chosen], [f for f in files if f in chosen]
