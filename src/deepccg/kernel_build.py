"""What of a room is compiled, how, and what the library is called.

Nothing here needs another package: a wheel is built without them (``setup.py``).
"""

import hashlib
import os
import platform
import shutil
import subprocess  # runs the compiler, on files of this package
import tempfile
from collections.abc import Sequence
from pathlib import Path

COMPILERS = ("g++", "c++", "clang++")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp")
# One instruction set for all machines that have it, so that they agree in the last digit.
AVX2 = ("-mavx2", "-mfma")
CARRIED = "compiled"  # the folder of the package with the libraries of a wheel
_TIMEOUT = 120  # seconds


def find_compiler() -> str | None:
    """Return the path of ``$CXX`` or of the first compiler there is."""
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), *COMPILERS])), None)


def kernel_sources(room: Path) -> list[Path]:
    """Return the files of a room that make its library."""
    return sorted(room.glob("*.cpp"))


def library_name(room: Path, made_with: Sequence[str]) -> str:
    """Return the name of a room's library, with a digest of what it is made from and with."""
    headers = [room.parent / "core" / "kernel.h", *sorted(room.glob("*.h"))]
    texts = [path.read_bytes() for path in [*headers, *kernel_sources(room)]]
    return f"{room.name}-{_digest(*texts, *map(os.fsencode, made_with))}"


def file_name(name: str, content: bytes) -> str:
    """Return the name of a library's file, with a digest of its content.

    So a damaged library is noticed before it is loaded, which could end the process.
    """
    return f"{name}-{_digest(content)}.so"


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()


def run_compiler(command: Sequence[str | Path], scratch: Path) -> None:
    """Run a compiler; what a killed one leaves goes with the directory ``scratch``."""
    subprocess.run(  # noqa: S603  (a compiler that the user has chosen or installed)
        command,
        check=True,
        capture_output=True,
        timeout=_TIMEOUT,
        env=os.environ | {"TMPDIR": str(scratch)},
    )


def build_carried(package: Path, compiler: str, target: Path) -> None:
    """Compile the libraries of all rooms of ``package`` into ``target``, for a wheel.

    They bring no OpenMP but use the one that PyTorch has loaded: a machine without a compiler may
    have no other. If there is none (``-z now``) they cannot be loaded, instead of failing later.
    """
    flags = (*FLAGS, *(AVX2 if platform.machine() in ("x86_64", "AMD64") else ()))
    for room in sorted({source.parent for source in package.rglob("*.cpp")}):
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            objects = [scratch / f"{source.stem}.o" for source in kernel_sources(room)]
            for source, compiled in zip(kernel_sources(room), objects, strict=True):
                run_compiler([compiler, *flags, "-c", source, "-o", compiled], scratch)
            built = scratch / "library.so"
            link = [compiler, "-shared", "-s", "-Wl,-z,now"]  # without -fopenmp: see above
            run_compiler([*link, "-o", built, *objects], scratch)
            content = built.read_bytes()
        target.mkdir(exist_ok=True)
        target.joinpath(file_name(library_name(room, flags), content)).write_bytes(content)
