"""The trackers by name. Each is imported when it is used: they are extras."""

import importlib.util

from deepccg.core import InputError
from deepccg.tracking.store import Described, Store

TRACKERS = {"mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}  # and their modules


def check_tracker(name: str) -> None:
    """Refuse, in one line, a name that is no tracker's or one that is not installed."""
    if name not in TRACKERS:
        raise InputError(f"track should be {' or '.join(TRACKERS)}; got {name!r}")
    if importlib.util.find_spec(TRACKERS[name]) is None:
        extra = "wandb" if name == "wandb" else "tracking"
        raise InputError(f"tracking with {name} needs a package: pip install 'deepccg[{extra}]'")


def prepare_tracker(name: str) -> None:
    """Make what all runs share, before several of them want it at once."""
    check_tracker(name)
    if name == "mlflow":
        from deepccg.tracking.mlflow_store import experiment

        experiment()


def open_store(name: str, described: Described) -> Store:
    """A run in a tracker: a new one, or the one that it was before it was interrupted."""
    check_tracker(name)
    if name == "mlflow":
        from deepccg.tracking.mlflow_store import MlflowStore

        return MlflowStore(described)
    if name == "tensorboard":
        from deepccg.tracking.tensorboard_store import TensorboardStore

        return TensorboardStore(described)
    from deepccg.tracking.wandb_store import WandbStore

    return WandbStore(described)
