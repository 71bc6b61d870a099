"""Recipes: where the parts of a data set come from, and how they get decoded into the cache."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
from deepccg.streams.cache import Entry, read_entry, safe_name, write_entry
from deepccg.streams.data import Dataset, Split, align_labels
from deepccg.streams.folder import folder_source, part_files, readable_source
from deepccg.streams.images import ImageSource, common_size

_FORMAT = 1  # of the cache: raise it when the same source would be decoded differently
_PARTS = {"train": ("train",), "test": ("test", "validation", "valid", "val")}

MOST_LISTED = 20  # names of unreadable images
_log = logging.getLogger(__name__)

Identity = list[object]


@dataclass(frozen=True)
class Facts:
    """What is known of a data set of images beforehand; None for what its files decide."""

    columns: Columns | None = None
    image_size: tuple[int, int] | None = None  # None: the size all images share, else 32 x 32
    n_classes: int | None = None  # how many it must have

    def check_classes(self, name: str, found: int) -> None:
        """Raise ``InputError`` for a source with another number of classes."""
        if self.n_classes not in (None, found):
            raise InputError(f"{name} has {self.n_classes} classes, but {found} were found")


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a data set of encoded images is made.

    Args:
        name: The name of the data set.
        identity: For a part (``train`` or ``test``), what its pixels depend on, as JSON values;
            cheap, and without opening the part. It decides whether the cache can be used.
        images: For a part, its images; called only when they have to be decoded.
        facts: What the images and classes must be like.
    """

    name: str
    identity: Callable[[str], Identity]
    images: Callable[[str], ImageSource]
    facts: Facts

    def dataset(self, cache_dir: Path) -> Dataset:
        """Return the data set; training images are decoded now if need be, test images on use."""
        train = self._entry("train", cache_dir, self.facts.image_size)

        def open_test() -> Split:
            # Whatever the sizes of the test images are, they become those of the training part.
            height, width = train.x.shape[2:]
            test = self._entry("test", cache_dir, (height, width))
            return Split(test.x, align_labels(test.y, test.names, train.names))

        return Dataset(self.name, train.names, lambda: Split(train.x, train.y), open_test)

    def cached(self, cache_dir: Path) -> bool:
        """Whether both parts of a data set of known image size are decoded already."""
        size = self.facts.image_size
        places = [self._place(part, cache_dir, size) for part in _PARTS]
        return all(read_entry(place) is not None for place in places)

    def _place(self, part: str, cache_dir: Path, image_size: tuple[int, int] | None) -> Path:
        about = json.dumps([_FORMAT, self.identity(part), part, image_size])
        key = hashlib.blake2b(about.encode(), digest_size=8).hexdigest()
        return cache_dir / safe_name(self.name) / f"{part}-{key}"

    def _entry(self, part: str, cache_dir: Path, image_size: tuple[int, int] | None) -> Entry:
        directory = self._place(part, cache_dir, image_size)
        entry = read_entry(directory)
        if entry is None:
            source = self.images(part)
            self.facts.check_classes(self.name, len(source.names))
            counts = np.bincount(source.y, minlength=len(source.names))
            if part == "train" and not counts.all():
                name = source.names[int(counts.argmin())]
                raise InputError(f"{self.name} has no training images of the class '{name}'")
            entry = write_entry(directory, source, image_size or common_size(source))
        if entry.skipped:
            _tell_skipped(f"{self.name} ({part})", entry.skipped)
        return entry


def _tell_skipped(where: str, skipped: Sequence[str]) -> None:
    listed = ", ".join(skipped[:MOST_LISTED])
    more = f" and {len(skipped) - MOST_LISTED} more" if len(skipped) > MOST_LISTED else ""
    _log.info("skipped in %s, as unreadable: %s: %s%s", where, len(skipped), listed, more)


def hub_recipe(name: str, repository: str, config: str | None, facts: Facts) -> Recipe:
    """Return the recipe of a data set of the public hub."""

    def images(part: str) -> ImageSource:
        (table,) = hub_tables(repository, config, [_PARTS[part]])
        return labelled_images(table, facts.columns)

    return Recipe(name, lambda _: ["hub", repository, config], images, facts)


def parquet_recipe(name: str, data_dir: Path, folders: Sequence[str], facts: Facts) -> Recipe:
    """Return the recipe of local parquet files, in one of ``folders`` within ``data_dir``."""
    place = parquet_folder(data_dir, folders)
    if place is None:
        places = ", ".join(str(data_dir / folder) for folder in (*folders, ""))
        raise InputError(f"no train*.parquet for {name}; looked in {places}")

    def files(part: str) -> list[Path]:
        found = parquet_part(place, _PARTS[part])
        if not found:
            raise InputError(f"there is no {part}*.parquet in {place}")
        return found

    def images(part: str) -> ImageSource:
        return labelled_images(parquet_table(files(part), data_dir), facts.columns)

    return Recipe(name, lambda part: file_identity(files(part)), images, facts)


def folder_recipe(folder: Path, facts: Facts, *, skip_unreadable: bool = False) -> Recipe:
    """Return the recipe of a folder of class folders, perhaps without what cannot be read."""

    def identity(part: str) -> Identity:
        classes = part_files(folder, part, skip_empty=skip_unreadable)
        about: Identity = [list(classes), file_identity(f for c in classes.values() for f in c)]
        return [*about, "skip unreadable"] if skip_unreadable else about

    def images(part: str) -> ImageSource:
        classes = part_files(folder, part, skip_empty=skip_unreadable)
        return readable_source(classes) if skip_unreadable else folder_source(classes)

    return Recipe(folder.resolve().name, identity, images, facts)


def file_identity(files: Iterable[Path]) -> Identity:
    """Return what changes with the files: path, size and time. Hashed only, never stored."""
    stats = ((str(file.resolve()), file.stat()) for file in files)
    return [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]
