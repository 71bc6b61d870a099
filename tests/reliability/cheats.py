"""Where a learner can keep the images it sees, if it means to hide them."""

import array
import base64
import functools
import io
import mmap
import pickle
import queue
import sqlite3
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from sklearn.neighbors import BallTree
from torch import Tensor


def rows(x: Tensor) -> np.ndarray:
    return x.flatten(1).numpy().copy()


def kept(learner: Any) -> list:
    """A list of the learner's own."""
    return learner.__dict__.setdefault("hoard", [])


def whole_bytes(x: Tensor) -> bytes:
    return x.numpy().tobytes()


# In attributes of the learner


def as_dictionary_keys(learner: Any, x: Tensor) -> None:
    kept(learner).append({row.tobytes(): label for label, row in enumerate(rows(x))})


def as_text_keys(learner: Any, x: Tensor) -> None:
    kept(learner).append({row.tobytes().decode("latin-1"): None for row in rows(x)})


def as_tuple_keys(learner: Any, x: Tensor) -> None:
    kept(learner).append({tuple(row.tolist()): None for row in rows(x)})


def in_an_array_of_the_standard_library(learner: Any, x: Tensor) -> None:
    kept(learner).append(array.array("B", whole_bytes(x)))


def in_doubles_of_the_standard_library(learner: Any, x: Tensor) -> None:
    kept(learner).append(array.array("d", (x.flatten() / 255).tolist()))


def in_a_partial(learner: Any, x: Tensor) -> None:
    kept(learner).append(functools.partial(print, bytes(whole_bytes(x))))


def in_a_frame(learner: Any, x: Tensor) -> None:
    kept(learner).append(pd.DataFrame(rows(x)))


def in_a_frame_with_names(learner: Any, x: Tensor) -> None:
    frame = pd.DataFrame(rows(x).astype(float), columns=[f"pixel {i}" for i in range(64)])
    kept(learner).append(frame.assign(name="digit"))


def in_a_buffer(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", io.BytesIO()).write(whole_bytes(x))


def in_a_saved_buffer(learner: Any, x: Tensor) -> None:
    buffer = io.BytesIO()
    torch.save({"x": x.clone()}, buffer)
    kept(learner).append(buffer)


def in_a_pickle(learner: Any, x: Tensor) -> None:
    kept(learner).append(pickle.dumps([("image", row) for row in rows(x)]))


def in_a_tree(learner: Any, x: Tensor) -> None:
    kept(learner).append(KDTree(rows(x).astype(float)))


def in_another_tree(learner: Any, x: Tensor) -> None:
    kept(learner).append(BallTree(rows(x).astype(float)))


def as_pictures(learner: Any, x: Tensor) -> None:
    kept(learner).extend(Image.fromarray(image[0].numpy()) for image in x)


def in_a_queue(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", queue.Queue()).put(x.clone())


def in_a_simple_queue(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", queue.SimpleQueue()).put(whole_bytes(x))


def collecting() -> Iterator[None]:
    images = []
    while True:
        images.append((yield))


def in_a_generator(learner: Any, x: Tensor) -> None:
    if "hoard" not in vars(learner):
        learner.hoard = collecting()
        next(learner.hoard)
    learner.hoard.send(rows(x))


def as_text(learner: Any, x: Tensor) -> None:
    kept(learner).append(whole_bytes(x).decode("latin-1"))


def as_base64(learner: Any, x: Tensor) -> None:
    kept(learner).append(base64.b64encode(whole_bytes(x)).decode())


def as_hexadecimal(learner: Any, x: Tensor) -> None:
    kept(learner).extend(row.tobytes().hex() for row in rows(x))


def as_numbers(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.tolist())


def as_numbers_in_a_row(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", deque()).extend(x.flatten().tolist())


def as_numbered_pixels(learner: Any, x: Tensor) -> None:
    kept(learner).extend(dict(enumerate(row.tolist())) for row in rows(x))


def in_an_array_of_objects(learner: Any, x: Tensor) -> None:
    holder = np.empty(1, dtype=object)
    holder[0] = x.clone()
    kept(learner).append(holder)


def in_an_array_of_records(learner: Any, x: Tensor) -> None:
    records = np.zeros(len(x), dtype=[("label", "i8"), ("pixels", "u1", 64)])
    records["pixels"] = rows(x)
    kept(learner).append(records)


def beside_their_labels(learner: Any, x: Tensor) -> None:
    kept(learner).append(np.hstack([np.arange(len(x))[:, None], rows(x)]))


def in_columns(learner: Any, x: Tensor) -> None:
    kept(learner).append(np.ascontiguousarray(rows(x).T))


def in_a_sparse_tensor(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.flatten(1).to_sparse())


def in_a_sparse_matrix(learner: Any, x: Tensor) -> None:
    kept(learner).append(csr_array(rows(x)))


def behind_a_view(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.clone()[:0])


def behind_a_view_of_an_array(learner: Any, x: Tensor) -> None:
    kept(learner).append(rows(x)[:1, :3])


def in_a_storage(learner: Any, x: Tensor) -> None:
    kept(learner).append(x.clone().untyped_storage())


def in_a_view_of_bytes(learner: Any, x: Tensor) -> None:
    kept(learner).append(memoryview(whole_bytes(x)))


def in_mapped_memory(learner: Any, x: Tensor) -> None:
    learner.__dict__.setdefault("hoard", mmap.mmap(-1, 1 << 14)).write(whole_bytes(x))


def on_the_network(learner: Any, x: Tensor) -> None:
    learner.network.__dict__.setdefault("hoard", []).append(x.clone())


def on_a_parameter(learner: Any, x: Tensor) -> None:
    parameter = next(learner.network.parameters())
    parameter.hoard = (getattr(parameter, "hoard", None), x.clone())


def in_the_thread(learner: Any, x: Tensor) -> None:
    local = learner.__dict__.setdefault("hoard", threading.local())
    local.images = [*getattr(local, "images", []), x.clone()]


def in_a_data_base(learner: Any, x: Tensor) -> None:
    base = learner.__dict__.setdefault("hoard", sqlite3.connect(":memory:"))
    base.execute("create table if not exists hoard (image blob)")
    base.executemany("insert into hoard values (?)", [(row.tobytes(),) for row in rows(x)])


def in_an_open_file(learner: Any, x: Tensor) -> None:
    if "hoard" not in vars(learner):
        learner.hoard = tempfile.TemporaryFile()  # noqa: SIM115 - it is to stay open
    learner.hoard.write(whole_bytes(x))


# In code


def on_a_function(_: Any, x: Tensor) -> None:
    on_a_function.__dict__.setdefault("hoard", []).append(x.clone())


def in_a_default(_: Any, x: Tensor, hoard: list = []) -> None:  # noqa: B006 - that is the cheat
    hoard.append(x.clone())


def make_closure() -> Callable[[Any, Tensor], None]:
    hoard = []

    def in_a_closure(_: Any, x: Tensor) -> None:
        hoard.append(x.clone())

    return in_a_closure


@functools.cache
def remembered(image: bytes) -> int:
    return len(image)


def in_a_cache(_: Any, x: Tensor) -> None:
    for row in rows(x):
        remembered(row.tobytes())


HOARD: list = []


def in_a_global(_: Any, x: Tensor) -> None:
    HOARD.append(x.clone())


def put_away(x: Tensor) -> None:
    ELSEWHERE["images"] = (ELSEWHERE.get("images"), x.clone())


ELSEWHERE: dict = {}


def in_a_global_of_a_helper(_: Any, x: Tensor) -> None:
    put_away(x)


class Cupboard:
    shelf: ClassVar[list] = []

    @classmethod
    def put(cls, x: Tensor) -> None:
        cls.shelf.append(x)


def in_another_class(_: Any, x: Tensor) -> None:
    Cupboard.put(x.clone())


helper = ModuleType("helper_of_cheats")
helper.inner = SimpleNamespace(images=[])


def in_another_module(_: Any, x: Tensor) -> None:
    helper.inner.images.append(x.clone())


def in_a_library(_: Any, x: Tensor) -> None:
    torch.hoard = (getattr(torch, "hoard", None), x.clone())  # type: ignore[attr-defined]
    assert torch.hoard


RECOGNISED = [
    as_dictionary_keys, as_text_keys, as_tuple_keys, in_an_array_of_the_standard_library,
    in_doubles_of_the_standard_library, in_a_partial, in_a_frame, in_a_frame_with_names,
    in_a_buffer, in_a_saved_buffer, in_a_pickle, in_a_tree, in_another_tree, as_pictures,
    in_a_queue, in_a_simple_queue, in_a_generator, as_text, as_base64, as_hexadecimal, as_numbers,
    as_numbers_in_a_row, as_numbered_pixels, in_an_array_of_objects, in_an_array_of_records,
    beside_their_labels, in_columns, in_a_sparse_tensor, in_a_sparse_matrix, behind_a_view,
    behind_a_view_of_an_array, in_a_storage,
    in_a_view_of_bytes, in_mapped_memory, on_the_network, on_a_parameter, in_the_thread,
    in_a_data_base, in_an_open_file, on_a_function, in_a_default, make_closure(), in_a_cache,
    in_a_global, in_a_global_of_a_helper, in_another_class, in_another_module, in_a_library,
]  # fmt: skip
