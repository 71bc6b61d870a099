"""Kill many runs and feed many broken inputs; `make torture`.

    python benchmarks/torture.py --kills 500 --saves 500 --fuzz 2000

Every kill is a SIGKILL to a process of its own: half of them inside a checkpoint's writes and
renames, the others at any write or at any time. Each run is then continued to its end, and every
file and the printed table are compared with those of a run to which nothing happened. Processes
that save a classifier again and again, with one thread or two, are killed likewise: the file must
be one of those saved, whole, and the next save must remove what was left.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELIABILITY = ROOT / "tests" / "reliability"
sys.path.insert(0, str(RELIABILITY))

from killing import (  # noqa: E402  (it lies with the tests)
    Figures,
    Whole,
    fork,
    killed_and_continued,
    prepare,
    random_moment,
    whole_run,
)
from killing_saves import SaveFigures, kill_a_saver, trained  # noqa: E402
from mutated_files import KINDS, load_mutated  # noqa: E402
from threaded_calls import call_from_threads  # noqa: E402


def kills(wanted: int, seed: int) -> Figures:
    """So many kills, going round the methods; one to three in each run."""
    from deepccg.methods import METHODS

    rng = random.Random(seed)  # noqa: S311  (to choose moments)
    figures, began = Figures(), time.monotonic()
    known: dict[str, Whole] = {}
    names = list(METHODS)
    runs = 0
    with tempfile.TemporaryDirectory() as scratch:
        while figures.kills < wanted:
            method = names[runs % len(names)]
            if method not in known:
                known[method] = whole_run(fork, method, Path(tempfile.mkdtemp(dir=scratch)))
            count = min(rng.choice((1, 1, 2, 3)), wanted - figures.kills)
            moments = [random_moment(known[method], rng) for _ in range(count)]
            before = figures.mismatches
            with tempfile.TemporaryDirectory(dir=scratch) as place:
                killed_and_continued(fork, method, Path(place), moments, known[method], figures)
            if figures.mismatches > before:
                print(f"MISMATCH: {method}, {moments}", flush=True)
            runs += 1
            if runs % 20 == 0:
                print(f"{figures.kills} kills, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{figures.kills} kills in {runs} runs of {len(known)} methods: "
        f"{figures.in_a_checkpoint} while a checkpoint was written, "
        f"{figures.from_previous} continued from the previous checkpoint, "
        f"{figures.mismatches} mismatches ({time.monotonic() - began:.0f} s, seed {seed})"
    )
    return figures


def saves(wanted: int, seed: int) -> SaveFigures:
    """So many kills of processes that save; every other one with two threads."""
    rng = random.Random(seed)  # noqa: S311  (to choose moments)
    figures, began, models = SaveFigures(), time.monotonic(), trained(2)
    with tempfile.TemporaryDirectory() as place:
        for number in range(wanted):
            kill_a_saver(Path(place) / "model", models[: 1 + number % 2], rng, figures)
            if number % 100 == 99:
                print(f"{figures.kills} saves killed", flush=True)
    print(
        f"{figures.kills} kills while a classifier was saved, half of them by two threads: "
        f"{figures.cut} left a temporary, at most {figures.most_left} at once, all removed by the "
        f"next save; {figures.failures} failures ({time.monotonic() - began:.0f} s, seed {seed})"
    )
    return figures


def fuzz(cases: int) -> int:
    """The fuzz tests, with so many cases each."""
    tests = sorted(RELIABILITY.glob("test_fuzz_*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", *map(str, tests)]
    environment = os.environ | {"DEEPCCG_FUZZ_CASES": str(cases)}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    status = done.returncode
    print(f"fuzz: {cases} cases for each of {len(tests)} files, exit status {status}")
    return status


def files(wanted: int, seed: int) -> int:
    """So many saved classifiers with entries changed: loaded and usable, or refused in a line."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        figures = load_mutated(wanted, Path(place), seed)
    for error in figures.errors:
        print(f"FAILED: {error}", flush=True)
    print(
        f"{wanted:,} mutated files of {len(KINDS)} kinds of classifiers: {figures.loaded:,} loaded "
        f"and used, {figures.refused:,} refused in one line, {len(figures.errors)} failures "
        f"({time.monotonic() - began:.0f} s, seed {seed})"
    )
    return len(figures.errors)


def threads(wanted: int, seed: int) -> int:
    """So many calls of classifiers from six threads, compared with a serial order."""
    began, errors, steps = time.monotonic(), 0, 0
    methods = ("deepccg", "er", "icarl", "esmer")
    for method in methods:
        with tempfile.TemporaryDirectory() as place:
            figures = call_from_threads(method, wanted // len(methods), Path(place), seed=seed)
        for error in figures.errors:
            print(f"FAILED: {method}, {error}", flush=True)
        errors, steps = errors + len(figures.errors), steps + figures.steps
    print(
        f"{wanted:,} calls from 6 threads on {len(methods)} classifiers, {steps:,} of them steps: "
        f"{errors} without a serial order ({time.monotonic() - began:.0f} s, seed {seed})"
    )
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--saves", type=int, default=500, help="kills while saving")
    parser.add_argument("--fuzz", type=int, default=2000, help="cases; 0 leaves them out")
    parser.add_argument("--files", type=int, default=0, help="mutated files of classifiers")
    parser.add_argument("--threads", type=int, default=0, help="calls from several threads")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "160"}
    failed = fuzz(arguments.fuzz) if arguments.fuzz else 0
    failed += files(arguments.files, arguments.seed) if arguments.files else 0
    failed += threads(arguments.threads, arguments.seed) if arguments.threads else 0
    prepare()
    saved = saves(arguments.saves, arguments.seed)
    figures = kills(arguments.kills, arguments.seed)
    sys.exit(1 if failed or figures.mismatches or saved.failures else 0)


if __name__ == "__main__":
    main()
