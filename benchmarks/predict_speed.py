"""Images per second of `predict`, beside a bare forward pass of the same network.

Usage: python benchmarks/predict_speed.py [--rounds 7]

Prints the table of docs/performance.md: DeepCCG and CCG as classifiers, and DeepCCG's ONNX export,
one image and 256 at a time, with one thread and two.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from competitors import images
from interleaved import Step, alternate, ratios, spread

from deepccg import CCGClassifier, DeepCCGClassifier
from deepccg.core import make_generator

CLASSES, STORED = 10, 10


def fitted(kind: type[DeepCCGClassifier] | type[CCGClassifier], **options: object) -> object:
    """A classifier that has met ten classes of noise: what it learned does not change its speed."""
    x = images(200, "learn").permute(0, 2, 3, 1).numpy()
    y = torch.randint(CLASSES, (200,), generator=make_generator(0, "labels")).numpy()
    return kind(random_state=0, **options).partial_fit(x, y, classes=range(CLASSES))


def competitors(batch: int, threads: int, folder: Path) -> dict[str, Step]:
    """Each predicts ``batch`` images; the bare passes are of the classifiers' own networks."""
    x = images(batch, "predict")
    rows = np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
    deep = fitted(DeepCCGClassifier, memory=CLASSES * STORED)
    closed = fitted(CCGClassifier)
    deep.export(folder / "deepccg.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(folder / "deepccg.onnx", options)

    def bare(network: torch.nn.Module) -> Step:
        def step() -> None:
            with torch.no_grad():
                network(x)

        return step

    return {
        "DeepCCG, bare forward": bare(deep.learner_.network),
        "DeepCCG, `predict`": lambda: deep.predict(rows),
        "DeepCCG, ONNX": lambda: session.run(None, {"x": rows}),
        "CCG, bare forward": bare(closed.learner_.network),
        "CCG, `predict`": lambda: closed.predict(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    print("| | threads | images at a time | images per second | time over the bare forward |")
    print("|---|---:|---:|---:|---:|")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for batch in (1, 256):
            with tempfile.TemporaryDirectory() as folder:
                contestants = competitors(batch, threads, Path(folder))
                cpu, wall = alternate(contestants, given.rounds, 20 if batch == 1 else 1)
            times_of = cpu if threads == 1 else wall  # processor time of two threads adds up
            for name, times in times_of.items():
                base = times_of[f"{name.partition(',')[0]}, bare forward"]
                middle, low, high = ratios(times, base)
                per_second = batch / spread(times)[0]
                print(
                    f"| {name} | {threads} | {batch} | {per_second:,.0f} | "
                    f"{middle:.2f} ({low:.2f}-{high:.2f}) |"
                )


if __name__ == "__main__":
    main()
