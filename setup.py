"""A wheel that is built on Linux with a C++ compiler carries the kernels, compiled.

Everything else is in ``pyproject.toml``.
"""

import shutil
import subprocess  # for its error
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SOURCE = Path(__file__).parent / "src"
sys.path.insert(0, str(SOURCE))

from deepccg.kernel_build import CARRIED, build_carried, find_compiler  # noqa: E402

COMPILER = find_compiler() if sys.platform == "linux" else None


class PlatformDistribution(Distribution):
    """Is for this platform only if it holds compiled code."""

    def has_ext_modules(self) -> bool:
        """Whether kernels are compiled."""
        return COMPILER is not None


class BuildWithKernels(build_py):
    """Compiles kernels after the files of the package are copied."""

    def run(self) -> None:
        """Leave out what cannot be compiled: it can be when it is first used, or PyTorch is."""
        super().run()
        if COMPILER is None or self.editable_mode:
            return
        target = Path(self.build_lib, "deepccg", CARRIED)
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build
        try:
            build_carried(SOURCE / "deepccg", COMPILER, target)
        except (OSError, subprocess.SubprocessError) as error:
            self.warn(f"this wheel carries no compiled kernels: {error}")


class WheelForAllPythons(bdist_wheel):
    """The kernels know neither Python nor PyTorch."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of the wheel."""
        return ("py3", "none", super().get_tag()[2])


setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelForAllPythons},
)
