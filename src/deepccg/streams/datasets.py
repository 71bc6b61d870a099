"""Data sets by name: the catalogue, hub addresses and folders, and the digits of scikit-learn."""

import os
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from deepccg.core import InputError, default_cache_dir, derive_seed, did_you_mean
from deepccg.streams.cache import safe_name
from deepccg.streams.data import Dataset, Split, rows_by_class
from deepccg.streams.folder import is_folder
from deepccg.streams.mini_imagenet import mini_imagenet_recipe
from deepccg.streams.recipes import Facts, Recipe, folder_recipe, hub_recipe, parquet_recipe

DIGITS_PER_CLASS = 140  # to train on, of at least 174; the others are the test part


@dataclass(frozen=True)
class DatasetInfo:
    """A data set that can be loaded by its name."""

    name: str
    classes: int
    image_shape: tuple[int, int, int]  # channels, height, width
    train: int  # images
    test: int
    source: str  # a repository of the public hub, or a package
    note: str  # what to cite, and what is known of the licence
    cached_at: Path | None = None  # where its decoded images are on this machine, if they are


_KRIZHEVSKY = (
    "cite Krizhevsky 2009, Learning multiple layers of features from tiny images; no formal licence"
)
_CATALOGUE = {
    info.name: info
    for info in (
        DatasetInfo(
            "digits", 10, (1, 8, 8), 1400, 397, "scikit-learn (installed)",
            "Alpaydin & Kaynak 1998, UCI Machine Learning Repository, CC BY 4.0",
        ),
        DatasetInfo("cifar10", 10, (3, 32, 32), 50_000, 10_000, "uoft-cs/cifar10", _KRIZHEVSKY),
        DatasetInfo("cifar100", 100, (3, 32, 32), 50_000, 10_000, "uoft-cs/cifar100", _KRIZHEVSKY),
        DatasetInfo(
            "mini-imagenet", 100, (3, 84, 84), 50_000, 10_000,
            "timm/mini-imagenet",
            "after Vinyals et al. 2016, Matching networks for one shot learning (its card: not "
            "exactly their classes); ImageNet's terms of access: non-commercial research",
        ),
    )
}  # fmt: skip

# How the hub stores them: columns, and the folder of the parquet files within the repository.
_LAYOUTS = {
    "cifar10": (("img", "label"), "plain_text"),
    "cifar100": (("img", "fine_label"), "cifar100"),
    # 65,000 ImageNet images of 100 classes at their own sizes, class names in the schema.
    "mini-imagenet": (("image", "label"), "data"),
}

# No leading dot, so that no name leads up in a directory. Always an owner: a single word would
# name one of the loaders of the ``datasets`` library.
_ADDRESS = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(:(?P<config>\w[\w.+-]*))?")


def available(
    cache_dir: str | Path | None = None, data_dir: str | Path | None = None
) -> list[DatasetInfo]:
    """List the data sets that have a name, and where they are cached.

    Cached is what ``load_dataset`` would find with the same ``data_dir``, both parts of it.
    """
    cache = Path(cache_dir) if cache_dir else default_cache_dir()
    place = Path(data_dir).expanduser() if data_dir else None
    return [
        replace(info, cached_at=cache / safe_name(name) if _is_cached(name, place, cache) else None)
        for name, info in _CATALOGUE.items()
    ]


def _is_cached(name: str, data_dir: Path | None, cache: Path) -> bool:
    if name not in _LAYOUTS:
        return False
    try:
        return _named_recipe(name, data_dir, None).cached(cache)
    except InputError:  # its files are not in the data directory
        return False


def load_dataset(
    name: str,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    image_size: int | None = None,
    skip_unreadable: bool = False,
) -> Dataset:
    """Load a data set: decoded once, memory-mapped from then on.

    Args:
        name: ``digits``, ``cifar10``, ``cifar100``, ``mini-imagenet``; ``hf:owner/name`` or
            ``hf:owner/name:config`` for any image-classification data set of the public hub; or
            a folder of class folders, as a path or ``folder:PATH``.
        data_dir: Where the parquet files of a named or hub data set are, instead of the hub.
            For ``mini-imagenet`` also a folder of class folders.
        cache_dir: Where decoded images are kept; by default ``$DEEPCCG_CACHE`` or the user's
            cache directory.
        image_size: The side of the square that images become. By default the data set's own;
            for hub data sets and folders the size that all images share, else 32.
        skip_unreadable: Leave unreadable images and empty class folders of a folder out, and tell
            which; by default they are an error.

    >>> data = load_dataset("digits")
    >>> data.n_classes, data.train.x.shape, len(data.test)
    (10, (1400, 1, 8, 8), 397)
    """
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be at least 1, not {image_size}")
    if skip_unreadable and (name in _CATALOGUE or name.startswith("hf:")):
        raise InputError(f"only images of a folder can be skipped: {name} is none")
    if name == "digits":
        if image_size not in (None, 8):
            raise InputError("the images of digits are 8 x 8: image_size cannot change that")
        names = tuple(str(digit) for digit in range(10))
        return Dataset("digits", names, lambda: _split_digits()[0], lambda: _split_digits()[1])
    size = (image_size, image_size) if image_size else None
    place = Path(data_dir).expanduser() if data_dir else None
    recipe = _recipe(name, place, size, skip_unreadable)
    return recipe.dataset(Path(cache_dir).expanduser() if cache_dir else default_cache_dir())


def _recipe(
    name: str, data_dir: Path | None, size: tuple[int, int] | None, skip_unreadable: bool
) -> Recipe:
    if name in _LAYOUTS:
        return _named_recipe(name, data_dir, size)
    kind, _, rest = name.partition(":")
    if kind == "hf":
        return _hub_recipe(name, rest, data_dir, size)
    path = Path(rest if kind == "folder" and rest else name).expanduser()
    if kind == "folder" or "/" in name or os.sep in name or is_folder(path):
        return folder_recipe(path, Facts(image_size=size), skip_unreadable=skip_unreadable)
    raise unknown_dataset(name)


def _named_recipe(name: str, data_dir: Path | None, size: tuple[int, int] | None) -> Recipe:
    (columns, folder), info = _LAYOUTS[name], _CATALOGUE[name]
    facts = Facts(columns, size or info.image_shape[1:], info.classes)
    folders = (name, folder, f"{name}/{folder}")
    if name == "mini-imagenet":
        return mini_imagenet_recipe(info.source, data_dir, folders, facts)
    if data_dir is None:
        return hub_recipe(name, info.source, None, facts)
    return parquet_recipe(name, data_dir, folders, facts)


def _hub_recipe(
    name: str, address: str, data_dir: Path | None, size: tuple[int, int] | None
) -> Recipe:
    named = _ADDRESS.fullmatch(address)
    if named is None:
        raise InputError(f"'{name}' does not name a hub data set: write hf:owner/name[:config]")
    repository, config = named["repository"], named["config"]
    facts = Facts(image_size=size)
    if data_dir is None:
        return hub_recipe(name, repository, config, facts)
    own = repository.rpartition("/")[2]
    folders = [own, "data", f"{own}/data"]
    if config:
        folders += [config, f"{own}/{config}"]
    return parquet_recipe(name, data_dir, folders, facts)


def unknown_dataset(name: str) -> InputError:
    """Return the error for a name that is no data set's, with those there are."""
    return InputError(
        f"unknown data set '{name}'{did_you_mean(name, _CATALOGUE)}: choose "
        f"{', '.join(_CATALOGUE)}, hf:owner/name, or a folder of class folders"
    )


@cache
def _split_digits() -> tuple[Split, Split]:
    """Return 8 x 8 grey images of the ten digits: 1,400 to train on, 397 to test on."""
    # Only its file is read: importing scikit-learn takes as long as many a run.
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(str(file), delimiter=",")  # 64 values 0..16 and the label, [N, 65]
    x = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = table[:, -1].astype(np.int64)
    train, test = [], []
    for c, rows in enumerate(rows_by_class(y)):
        # A fixed seed: the split is part of the data set, not of a run.
        order = np.random.default_rng(derive_seed(0, "digits-split", str(c))).permutation(rows)
        train.append(order[:DIGITS_PER_CLASS])
        test.append(order[DIGITS_PER_CLASS:])
    digits = Split(x, y)
    return digits.take(np.sort(np.concatenate(train))), digits.take(np.sort(np.concatenate(test)))
