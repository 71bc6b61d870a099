"""Kernels are called by the parameter names of their C++ declaration, and tested when loaded."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from deepccg.core import compile as compilation
from deepccg.core.compile import KernelLibrary, load_kernels
from deepccg.gaussian import kernels as gaussian_kernels
from deepccg.kernel_build import COMPILERS
from deepccg.networks import kernels as network_kernels

ROOMS = {"gaussian": gaussian_kernels, "networks": network_kernels}
SOURCE = Path(compilation.__file__).parent.parent

has_compiler = any(map(shutil.which, COMPILERS))
needs_compiler = pytest.mark.skipif(not has_compiler, reason="no C++ compiler was found")


@pytest.mark.parametrize("room", ROOMS)
@needs_compiler
def test_kernels_are_available_wherever_there_is_a_compiler(room):
    assert ROOMS[room].unavailable_reason() is None


DOUBLED = """
#include "../core/kernel.h"

KERNEL_SIZES(Sizes, rows, columns);

KERNEL(add_doubled, const Sizes* sizes, const float* a, const float* b, float* out, double factor) {
  for (int64_t i = 0; i < sizes->rows * sizes->columns; ++i) out[i] = 2 * a[i] + factor * b[i];
}

KERNEL(count, const uint8_t* mask, const int64_t* weight, int64_t* out, int n) {
  for (*out = 0; n--; ++mask, ++weight) *out += *mask * *weight;
}
"""


@pytest.fixture
def compile_source(tmp_path, monkeypatch):
    """Load kernels from C++ text, compiled quickly and into a cache that is thrown away."""
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation, "FLAGS", ("-O0", *compilation.FLAGS[1:]))
    (tmp_path / "core").mkdir()
    shutil.copy(SOURCE / "core" / "kernel.h", tmp_path / "core")
    (tmp_path / "room").mkdir()

    def load(text: str, self_test=lambda _: []) -> KernelLibrary | str:
        source = tmp_path / "room" / "kernels.cpp"
        source.write_text(text)
        return load_kernels(source.parent, self_test)

    return load


@needs_compiler
def test_a_call_follows_the_order_of_the_declaration(compile_source):
    a, b, out = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), torch.zeros(2)
    swapped = DOUBLED.replace(
        "const float* a, const float* b, float* out, double factor",
        "double factor, float* out, const float* b, const float* a",
    ).replace("rows, columns", "columns, rows")
    for text in (DOUBLED, swapped):
        library = compile_source(text)
        sizes = library.sizes("Sizes")(rows=1, columns=2)
        library["add_doubled"](sizes=sizes, a=a, b=b, out=out, factor=0.5)
        assert out.tolist() == [7.0, 14.0]


@needs_compiler
def test_arguments_that_are_not_the_declared_ones_are_refused(compile_source):
    library = compile_source(DOUBLED)
    kernel, out = library["count"], torch.zeros((), dtype=torch.int64)
    right = {"mask": torch.tensor([True, False]), "weight": np.array([3, 4]), "out": out, "n": 2}
    kernel(**right)
    assert int(out) == 3
    wrong = (
        {"mask": torch.tensor([1, 0])},  # another type of number
        {"weight": torch.tensor([3.0, 4.0])},
        {"weight": np.array([3, 4], dtype=np.int32)},
        {"weight": np.array([3, 0, 4, 0])[::2]},  # not contiguous
        {"weight": torch.empty(2, dtype=torch.int64, device="meta")},
        {"weight": [3, 4]},
        {"n": 2.0},
    )
    for change in wrong:
        with pytest.raises(ctypes.ArgumentError):
            kernel(**right | change)
    with pytest.raises(TypeError):
        kernel(**right, more=1)
    del right["mask"]
    with pytest.raises(TypeError):
        kernel(**right)
    with pytest.raises(TypeError, match=r"Sizes has .* got \['rows', 'column'\]"):
        library.sizes("Sizes")(rows=1, column=2)
    with pytest.raises(AttributeError):
        library["missing"]


# A text of the source, a wrong one instead, and the kernel that is wrong then.
MISTAKES = [
    ("gaussian", "count[y[i]] += 1;", "count[y[i]] += 2;", "centre_float32"),
    ("gaussian", "(c == y[b]) - share", "(c == y[b])", "likelihood_float32"),
    ("gaussian", "cost_[i] < cost_[worst]", "cost_[i] > cost_[worst]", "exchange_float32"),
    ("networks", "return at * stride + k - padding;", "return at * stride + k;", "convolve"),
    ("networks", "at + padding - k;", "at + padding - k - 1;", "convolve_images_gradient"),
    ("networks", "a / 2 + 2 * b;", "a / 2 + b;", "convolve"),
    ("networks", "- 1 - c.padding,", "- c.padding,", "convolve_images_gradient"),
    ("networks", "(b - a) / 3", "(b + a) / 3", "convolve_weights_gradient"),
    ("networks", "= sum[image];", "= sum[0];", "convolve_weights_gradient"),
    ("networks", "/ n.pixels + epsilon", "/ n.pixels", "instance_norm"),
    ("networks", "*= -scale.value[r] /", "*= scale.value[r] /", "instance_norm_gradient"),
]


@pytest.fixture
def change_room(tmp_path, monkeypatch):
    """A room's kernels, loaded again from a copy of the sources in which a text is replaced."""
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation, "FLAGS", ("-O0", *compilation.FLAGS[1:]))
    changed = []

    def change(room: str, old: str, new: str):
        kernels = ROOMS[room]
        found = 0
        for name in ("core", room):
            (tmp_path / name).mkdir()
            for path in [*(SOURCE / name).glob("*.h"), *(SOURCE / name).glob("*.cpp")]:
                text = path.read_text()
                found += text.count(old)
                (tmp_path / name / path.name).write_text(text.replace(old, new))
        assert found > 0
        monkeypatch.setattr(kernels, "_HERE", tmp_path / room)
        changed.append(kernels)
        kernels._library.cache_clear()
        return kernels

    yield change
    for kernels in changed:
        kernels._library.cache_clear()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("room", "old", "new", "kernel"), MISTAKES)
def test_a_kernel_that_is_wrong_is_refused(change_room, room, old, new, kernel):
    kernels = change_room(room, old, new)
    reason = f"the compiled {kernel} does not compute what PyTorch computes"
    assert kernels.unavailable_reason() == reason


@needs_compiler
@pytest.mark.parametrize(
    ("room", "old", "new"),
    [
        ("gaussian", "T* mean, T* count, T* deviation,", "T* count, T* mean, T* deviation,"),
        pytest.param(
            "networks",
            "height, width, inputs, out_height",
            "inputs, height, width, out_height",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_parameters_in_another_order_are_called_in_that_order(change_room, room, old, new):
    assert change_room(room, old, new).unavailable_reason() is None


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("T* deviation,", "T* deviation, int more,"),
        ("const int64_t* quota", "const double* quota"),
        ("KERNEL_OF_T(exchange,", "KERNEL_OF_T(exchanged,"),
    ],
)
def test_parameters_that_python_does_not_know_are_refused(change_room, old, new):
    reason = change_room("gaussian", old, new).unavailable_reason()
    assert reason is not None
    assert reason.startswith("the compiled kernels do not have the expected parameters: ")
    assert "\n" not in reason
