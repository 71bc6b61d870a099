"""What a run directory says of its run."""

from pathlib import Path

from deepccg.core import InputError, Learner
from deepccg.experiment.config import RunConfig, validated
from deepccg.methods import METHODS
from deepccg.networks import gains_from_native
from deepccg.records import RunDirectory
from deepccg.streams import Dataset, available, load_dataset


class ClassNeeded(InputError):
    """A run of a class of the user's own, which was not passed.

    Args:
        directory: The run.
        method: The name of the class, as it is recorded.
    """

    def __init__(self, directory: Path, method: str) -> None:
        super().__init__(f"{directory} was run with {method}: pass that class as learner")
        self.directory = directory
        self.method = method


def recorded_config(target: RunDirectory) -> RunConfig:
    """What a run directory says was run."""
    if not target.config_path.exists():
        raise InputError(f"{target.path} is not a run directory: it has no config.toml")
    return validated(RunConfig, target.config())


def recorded(
    target: RunDirectory, learner: type[Learner] | None = None
) -> tuple[RunConfig, type[Learner]]:
    """What a run directory says was run, and the learner's class.

    A class of the user's own has to be passed: a directory cannot make this import code.
    """
    config = recorded_config(target)
    chosen = learner or METHODS.get(config.method.name)
    if chosen is None:
        raise ClassNeeded(target.path, config.method.name)
    return config, chosen


def kernels_of(config: RunConfig, target: RunDirectory, shape: tuple[int, ...]) -> str:
    """What ``auto`` stands for: what the run was begun with, else what is faster here."""
    if config.kernels != "auto":
        return config.kernels
    if target.config_path.exists():  # runs begun before there was a choice say nothing
        return validated(RunConfig, {"kernels": "torch", **target.config()}).kernels
    return "native" if gains_from_native(config.network, shape) else "torch"


def folder_of(dataset: str) -> str | None:
    """The folder a data set's setting names; ``None`` for one that is known by name."""
    known = dataset.startswith("hf:") or dataset in {info.name for info in available()}
    return None if known else dataset.removeprefix("folder:")


def recorded_data(config: RunConfig, target: RunDirectory, data_dir: str | Path | None) -> Dataset:
    """The data set a configuration names; of a folder it has the name and not the place."""
    folder = folder_of(config.dataset)
    if folder is None:
        return load_dataset(config.dataset, data_dir=data_dir)
    if data_dir is None:
        raise InputError(f"{target.path} learned {folder!r}: say where that lies (--data-dir)")
    return load_dataset(f"folder:{data_dir}")
