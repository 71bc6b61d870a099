"""Streams: labelled data, in the order in which a learner gets to see it."""

from deepccg.core import default_cache_dir
from deepccg.streams.data import Dataset, Split, cap_per_class, from_arrays, hold_out, make_test_set
from deepccg.streams.datasets import DatasetInfo, available, load_dataset
from deepccg.streams.domains import Domain, DomainArray, draw_domains
from deepccg.streams.folder import image_files
from deepccg.streams.images import read_images, readable_files
from deepccg.streams.schedules import (
    MOST_SPREAD,
    OWN_OPTIONS,
    SCHEDULES,
    TASK_FREE,
    blurry,
    build_stream,
    check_options,
    default_classes_per_task,
    disjoint,
    domain,
    gaussian,
    shifting_window,
)
from deepccg.streams.stream import Cursor, JointStream, Stream

__all__ = [
    "MOST_SPREAD",
    "OWN_OPTIONS",
    "SCHEDULES",
    "TASK_FREE",
    "Cursor",
    "Dataset",
    "DatasetInfo",
    "Domain",
    "DomainArray",
    "JointStream",
    "Split",
    "Stream",
    "available",
    "blurry",
    "build_stream",
    "cap_per_class",
    "check_options",
    "default_cache_dir",
    "default_classes_per_task",
    "disjoint",
    "domain",
    "draw_domains",
    "from_arrays",
    "gaussian",
    "hold_out",
    "image_files",
    "load_dataset",
    "make_test_set",
    "read_images",
    "readable_files",
    "shifting_window",
]
