"""Which rooms of the package the estimators load."""

import subprocess
import sys

import pytest

FORBIDDEN = {"experiment", "sweep", "streams", "tracking", "report"}


@pytest.mark.parametrize("module", ["deepccg.estimator", "deepccg.estimator.river"])
def test_estimators_load_no_experiment_code(module: str) -> None:
    code = (
        f"import sys, {module};"
        "print({name.split('.')[1] for name in sys.modules if name.startswith('deepccg.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {room.strip("'") for room in done.stdout.strip("{}\n").split(", ")}
    assert "estimator" in rooms
    assert not rooms & FORBIDDEN
