"""The same kernels for registers of other processors: one template, its width a parameter."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from deepccg.core import compile as compilation
from deepccg.core.compile import KernelLibrary, load_kernels
from deepccg.kernel_build import FLAGS, find_compiler, kernel_sources
from deepccg.networks.kernel_self_test import self_test

PACKAGE = Path(compilation.__file__).parents[1]
SOURCES = [source for room in ("gaussian", "networks") for source in kernel_sources(PACKAGE / room)]
ARM = "aarch64-linux-gnu-g++"


@pytest.mark.slow
@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler was found")
@pytest.mark.parametrize("lanes", [4, 16])
def test_registers_of_another_width_compute_the_same(lanes, tmp_path, monkeypatch):
    """16 lanes run as AVX-512 where there is that, elsewhere as pairs of registers."""
    wide = ("-mavx512f",) if torch.backends.cpu.get_cpu_capability() == "AVX512" else ()
    monkeypatch.setattr(compilation, "FLAGS", (*FLAGS, *wide, f"-DDEEPCCG_LANES={lanes}"))
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path))
    library = load_kernels(PACKAGE / "networks", self_test)
    assert isinstance(library, KernelLibrary), library
    count = torch.zeros(1, dtype=torch.int64)
    library["lanes"](count=count)
    assert int(count) == lanes


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(ARM) is None, reason=f"not compiled for ARM: there is no {ARM}")
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_kernels_compile_for_arm_and_use_neon(source, tmp_path):
    """Compiled only: nothing here runs them."""
    flags = [flag for flag in FLAGS if flag != "-shared"]
    assembler = tmp_path / "kernels.s"
    subprocess.run([ARM, *flags, "-Wall", "-Werror", "-S", source, "-o", assembler], check=True)
    assert "fmla\tv" in assembler.read_text()
