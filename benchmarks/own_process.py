"""What takes a process of its own to measure: memory at its peak, and two runs side by side."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from competitors import Setting, build_learner, learner_step


def peak_memory(name: str, size: Setting, fields: Mapping[str, object]) -> float:
    """MiB resident at most, of a process that builds the learner and takes three steps."""
    request = json.dumps([name, size.classes, size.per_class, dict(fields)])
    command = [sys.executable, __file__, "--memory", request]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def two_at_once(steps: int) -> float:
    """Wall time of two processes side by side over that of one alone; both single-threaded."""
    command = [sys.executable, __file__, "--steps", str(steps)]

    def lasts(count: int) -> float:
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        return max(float(process.communicate()[0]) for process in running)

    return statistics.median(lasts(2) / lasts(1) for _ in range(3))


def _print_memory(request: str) -> None:
    name, classes, per_class, fields = json.loads(request)
    size = Setting(classes, per_class)
    step = learner_step(build_learner(name, size, **fields), size)
    for _ in range(3):
        step()
    # Not `ru_maxrss`: a new process begins with that of the one that has started it.
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in status if line.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1024)  # kB


def _print_seconds(steps: int) -> None:
    step = learner_step(build_learner("er", Setting()), Setting())
    step()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    print(time.perf_counter() - start)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory")
    parser.add_argument("--steps", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        _print_memory(given.memory)
    else:
        _print_seconds(given.steps)
