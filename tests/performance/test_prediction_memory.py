"""Predictions for many inputs take a few times the inputs' bytes, however large embeddings are."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
import deepccg

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

generator = np.random.default_rng(0)
x, y = generator.standard_normal((500, 20), dtype=np.float32), np.arange(500) % 10
classifier = getattr(deepccg, sys.argv[1])(random_state=0).fit(x, y)
classifier.predict_proba(x)
many = generator.standard_normal((400_000, 20), dtype=np.float32)
before = peak()
found = classifier.predict_proba(many)
print((peak() - before) / many.nbytes)
rows = slice(23_000, 25_000)  # two parts meet there
assert np.allclose(found[rows], classifier.predict_proba(many[rows]), rtol=1e-5, atol=1e-7)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="NOT RUN: peaks are counted in other units")
@pytest.mark.parametrize(("classifier", "most"), [("DeepCCGClassifier", 6), ("CCGClassifier", 10)])
def test_predicting_many_rows_takes_a_few_times_their_bytes(classifier: str, most: int) -> None:
    command = [sys.executable, "-c", PROGRAM, classifier]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # A copy, and four arrays of outputs that are as large; all of them in double precision.
    assert float(done.stdout) < most
