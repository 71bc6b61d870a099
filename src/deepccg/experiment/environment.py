"""The environment of a run: versions, commit and processor."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from deepccg.experiment.config import RunConfig

_PACKAGES = ("deepccg", "torch", "numpy", "safetensors", "scikit-learn")


def environment(config: RunConfig) -> dict[str, Any]:
    """Return versions, commit, processor and threads: what bit-exact repetition depends on."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": config.threads,
        "device": config.device,
        "packages": {name: version(name) for name in _PACKAGES},
        "commit": _commit(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """Return the commit of a source checkout, with a plus sign if files differ from it."""
    here = Path(__file__).resolve()
    try:
        # Installed inside another project's checkout, this file is not one of that project's.
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", "--abbrev=12", "--dirty=+") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]  # fixed commands, whichever git there is
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    return done.stdout.strip()
