"""MiniImageNet's split for continual learning: 500 training and 100 test images per class.

Copies of the data set come divided for other purposes, the few-shot benchmark *by class*, so all
parts are put together and every class is divided here. The rule must give the same split to
everybody: the images of a class are put in order of a hash of their encoded bytes; the first 100
are test, the next 500 are training images. The rows of an archive, its shards and its file names
may be in any order; the content of an image file stays the same. The chosen rows are kept in the
cache.

No image is on both sides: one that is there twice counts once, and one that is in two classes, so
that one of its labels is wrong, is left out of both. The original of 600 images per class has such
images. Its classes with fewer than 600 others have fewer training images, and this is told.

The hub's copy has 100 ImageNet classes; its card says that they are not exactly those of Vinyals
et al. (2016). The original can be given as a folder of class folders.
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from deepccg.core import InputError
from deepccg.streams.arrow import (
    Columns,
    hub_tables,
    labelled_images,
    parquet_folder,
    parquet_part,
    parquet_table,
)
from deepccg.streams.folder import class_files, folder_source, is_divided
from deepccg.streams.images import ImageSource, concatenate
from deepccg.streams.recipes import Facts, Identity, Recipe, file_identity

NAME = "mini-imagenet"
_PARTS = (("train",), ("validation", "valid", "val"), ("test",))
_RULE = 2  # of the split: raise it when the same images would be divided differently


def mini_imagenet_recipe(
    repository: str,
    data_dir: Path | None,
    folders: Sequence[str],
    facts: Facts,
    *,
    train_per_class: int = 500,
    test_per_class: int = 100,
) -> Recipe:
    """Return the recipe of MiniImageNet: from the hub, parquet files or class folders."""
    where, sources = _all_parts(repository, data_dir, folders, facts.columns)

    def images(part: str) -> ImageSource:
        everything = concatenate(sources())
        facts.check_classes(NAME, len(everything.names))
        return _choose_part(everything, part, train_per_class, test_per_class)

    identity: Identity = [_RULE, train_per_class, test_per_class, where]
    return Recipe(NAME, lambda _: identity, images, facts)


def _all_parts(
    repository: str, data_dir: Path | None, folders: Sequence[str], columns: Columns | None
) -> tuple[Identity, Callable[[], list[ImageSource]]]:
    """Return where all parts come from, and how to read them."""
    if data_dir is None:
        return ["hub", repository], lambda: [
            labelled_images(table, columns) for table in hub_tables(repository, None, _PARTS)
        ]
    place = parquet_folder(data_dir, folders)
    if place is not None:
        tables = [found for names in _PARTS if (found := parquet_part(place, names))]
        files = [file for table in tables for file in table]
        return file_identity(files), lambda: [
            labelled_images(parquet_table(table, data_dir), columns) for table in tables
        ]
    classes = _class_folders(data_dir, folders)
    files = [file for one in classes for members in one.values() for file in members]
    return file_identity(files), lambda: [folder_source(one) for one in classes]


def _class_folders(data_dir: Path, folders: Sequence[str]) -> list[dict[str, list[Path]]]:
    """The files of each class, for each part that there is."""
    own = data_dir / NAME
    root = own if own.is_dir() else data_dir
    roots = [root]
    if is_divided(root):
        roots = [root / part for names in _PARTS for part in names if (root / part).is_dir()]
    try:
        return [class_files(folder) for folder in roots]
    except InputError as error:
        if root == own:
            raise
        # The directory may hold something else altogether.
        places = ", ".join(str(data_dir / folder) for folder in (*folders, ""))
        raise InputError(
            f"there is no {NAME} in {data_dir}; looked for train*.parquet in {places}, and for "
            f"a folder for each class in {own} and {data_dir} ({error})"
        ) from None


def _choose_part(
    source: ImageSource, part: str, train_per_class: int, test_per_class: int
) -> ImageSource:
    """Return the ``train`` or the ``test`` images of all images."""
    by_class, repeated, ambiguous = _different_images(source)
    needed = test_per_class + train_per_class
    given = np.bincount(source.y, minlength=len(source.names))
    for name, count, different in zip(source.names, given, by_class, strict=True):
        if count < needed or len(different) <= test_per_class:
            raise InputError(
                f"class '{name}' has {len(different)} different images; the split needs "
                f"{test_per_class} test and {train_per_class} training images"
            )
    if part == "train" and repeated + ambiguous:  # not again for the test part
        shorter = [len(different) for different in by_class if len(different) < needed]
        short = f", the smallest with {min(shorter) - test_per_class}" if shorter else ""
        warnings.warn(
            f"left out of {NAME}: repeated images: {repeated}; images in two classes: {ambiguous} "
            f"(classes with fewer than {train_per_class} training images: {len(shorter)}{short})",
            stacklevel=2,
        )
    wanted = slice(test_per_class) if part == "test" else slice(test_per_class, needed)
    chosen = [position for different in by_class for position in different[wanted]]
    return source.take(np.sort(np.array(chosen, dtype=np.int64)))


def _different_images(source: ImageSource) -> tuple[list[list[int]], int, int]:
    """Return the different images of each class in order of their hashes.

    And how many were left out: copies within a class, and images that are in several classes.
    """
    copies: dict[bytes, list[int]] = {}
    for position, (_, encoded) in enumerate(source):
        digest = hashlib.blake2b(encoded, digest_size=16).digest()
        copies.setdefault(digest, []).append(position)
    by_class: list[list[int]] = [[] for _ in source.names]
    repeated = ambiguous = 0
    for _, positions in sorted(copies.items()):
        if len(set(source.y[positions])) > 1:
            ambiguous += len(positions)
        else:
            by_class[source.y[positions[0]]].append(positions[0])
            repeated += len(positions) - 1
    return by_class, repeated, ambiguous
