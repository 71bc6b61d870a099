"""Methods with the options that vectors allow, against every check of the public suite."""

import pytest

from deepccg.methods import METHODS
from deepccg.testing import learner_checks

RECIPES = {
    "adamw, averaged": {
        "repeats": 2, "optimiser": "adamw", "lr": 0.02, "weight_decay": 0.01, "average": 0.7,
    },
    "momentum, gaussian": {
        "momentum": 0.5, "lr": 0.05, "schedule": "inverse-sqrt", "warmup": 3, "readout": "gaussian",
    },
}  # fmt: skip
CASES = [
    pytest.param(check, id=f"{method}, {recipe}: {name}")
    for method in ("er", "agem", "icarl", "deepccg")
    for recipe, fields in RECIPES.items()
    for name, check in learner_checks(METHODS[method], METHODS[method].Config(**fields))
]


@pytest.mark.slow
@pytest.mark.parametrize("check", CASES)
def test_the_contract_holds(check) -> None:
    check()
