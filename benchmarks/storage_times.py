"""When stored examples arrived: their positions in the stream of their class.

0 is the first example of its class, 100 the last; a uniform sample has its quartiles at 25, 50, 75.
An example that came more than once counts where it came first.

Usage: python benchmarks/storage_times.py RUN/seed-0 ... --data-dir DATA
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from deepccg.experiment import build_run_data, resolve_recorded
from deepccg.experiment.load import stored_examples
from deepccg.records import RunDirectory
from deepccg.streams import Stream, load_dataset


def arrivals(stream: Stream, stored: np.ndarray) -> np.ndarray:
    """Of each stored example, how much of its class had come before it, in percent, ``[N]``."""
    wanted = {x.tobytes() for x in stored}
    place, seen = {}, Counter()
    for batch in stream:
        for x, label in zip(batch.x.numpy(), batch.y.tolist(), strict=True):
            if (key := x.tobytes()) in wanted:
                place.setdefault(key, (label, seen[label]))
            seen[label] += 1
    found = (place[x.tobytes()] for x in stored)
    return np.array([100 * before / max(seen[label] - 1, 1) for label, before in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories with their checkpoints")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| run | 5 % | quartile | median | quartile | 95 % |\n|---|---:|---:|---:|---:|---:|")
    for path in arguments.runs:
        config = resolve_recorded(RunDirectory(path).config())
        data = load_dataset(config.dataset, data_dir=arguments.data_dir)
        stored = stored_examples(path).x
        when = arrivals(build_run_data(config, data).stream, stored)
        cells = (f"{value:.0f}" for value in np.percentile(when, [5, 25, 50, 75, 95]))
        print(f"| {path} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
