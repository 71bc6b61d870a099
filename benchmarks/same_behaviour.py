"""Compare two commits bit for bit: every method, on digits and on CIFAR-shaped images.

    python benchmarks/same_behaviour.py BEFORE [AFTER]

AFTER is the working tree unless it is given. Each run's configuration, records (without times),
predictions and saved state are hashed; the table names every hash that differs. Image runs are made
with native kernels and with PyTorch's.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THREADS = 1


def digest(*chunks: bytes) -> str:
    return hashlib.blake2b(b"\0".join(chunks), digest_size=8).hexdigest()


def images():
    import numpy as np

    import deepccg

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    x = rng.integers(0, 256, size=(len(y), 3, 32, 32)).astype(np.uint8)
    x[:, 0] = (x[:, 0] // 2 + 30 * y[:, None, None]).astype(np.uint8)
    keep = np.arange(len(y)) % 30 < 24
    x = x.transpose(0, 2, 3, 1)  # channels last
    parts = {"x_test": x[~keep], "y_test": y[~keep]}
    return deepccg.from_arrays(x[keep], y[keep], **parts, name="cifar-shaped")


def hashes(directory: Path) -> dict[str, str]:
    """What a finished run left, without what a clock or a machine decides."""
    import deepccg

    timeless = []
    for line in (directory / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        timeless.append({key: value for key, value in record.items() if "second" not in key})
    state = deepccg.load(directory).state_dict()
    tensors = [
        f"{name} {list(value.shape)} {value.dtype}".encode() + value.numpy().tobytes()
        for name, value in sorted(state.tensors.items())
    ]
    return {
        "config": digest((directory / "config.toml").read_bytes()),
        "records": digest(json.dumps(timeless, sort_keys=True).encode()),
        "tensors": digest(*tensors),
        "meta": digest(json.dumps(state.meta, sort_keys=True).encode()),
    }


def fingerprint() -> dict[str, dict[str, str]]:
    import torch

    import deepccg

    torch.set_num_threads(THREADS)
    found = {}
    data = images()
    variants = {"deepccg": ("default", "strong", "paper")}
    for method in deepccg.METHODS:
        for preset in variants.get(method, ("default",)):
            for where, kernels in (("digits", "native"), ("images", "native"), ("images", "torch")):
                settings = {
                    "method": method,
                    "preset": preset,
                    "kernels": kernels,
                    "threads": THREADS,
                    "memory_per_class": 4,
                    "seed": 3,
                }
                if where == "digits":
                    settings |= {"dataset": "digits", "stream.examples_per_class": 60}
                else:
                    settings |= {"data": data, "stream.classes_per_task": 2}
                with tempfile.TemporaryDirectory() as folder:
                    target = Path(folder) / "run"
                    deepccg.run(directory=target, **settings)
                    found[f"{method} {preset} {where} {kernels}"] = hashes(target)
    found["classifier"] = classifier_hashes()
    return found


def classifier_hashes() -> dict[str, str]:
    """A scikit-learn classifier that met its classes one after the other."""
    from sklearn.datasets import load_digits

    import deepccg

    x, y = load_digits(return_X_y=True)
    order = y.argsort(kind="stable")
    x, y = x[order][::6] / 16, y[order][::6]
    model = deepccg.DeepCCGClassifier(memory=40, random_state=0)
    for start in range(0, len(y), 10):
        model.partial_fit(x[start : start + 10], y[start : start + 10])
    state = model.learner_.state_dict()
    tensors = [value.numpy().tobytes() for _, value in sorted(state.tensors.items())]
    return {"records": digest(model.predict_proba(x).tobytes()), "tensors": digest(*tensors)}


def of_tree(tree: Path) -> dict[str, dict[str, str]]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, __file__, "--fingerprint"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tree)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def of_commit(commit: str) -> dict[str, dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            return of_tree(tree)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?")
    parser.add_argument("after", nargs="?")
    parser.add_argument("--fingerprint", action="store_true", help="only print the hashes")
    parser.add_argument("--write", type=Path, help="also write the hashes of BEFORE here")
    asked = parser.parse_args()
    if asked.fingerprint:
        print(json.dumps(fingerprint()))
        return
    known = Path(asked.before)
    before = json.loads(known.read_text()) if known.is_file() else of_commit(asked.before)
    if asked.write:
        asked.write.write_text(json.dumps(before, indent=1))
    after = of_commit(asked.after) if asked.after else of_tree(ROOT)
    differing = [
        f"{run}: {what}"
        for run in sorted(before.keys() | after.keys())
        for what in ("config", "records", "tensors", "meta")
        if before.get(run, {}).get(what) != after.get(run, {}).get(what)
    ]
    print("\n".join(differing) or f"{len(before)} runs, all the same bit for bit")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
