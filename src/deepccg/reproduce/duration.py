"""How long runs take, so that nobody waits for hours unawares."""

from collections.abc import Iterable

from deepccg.experiment import RunConfig
from deepccg.sweep import Job

# Seconds of a run on one core, and of following shift in it: means over the methods of Table 1 in
# benchmarks/runs.jsonl, where ER takes a third of the mean and DeepCCG up to three times as much.
# MiniImageNet was not measured: its images have seven times the pixels of those of CIFAR-100.
_SECONDS = {"digits": 5, "cifar10": 40, "cifar100": 600, "mini-imagenet": 4200}
_SHIFT_SECONDS = {"digits": 1, "cifar10": 40, "cifar100": 450, "mini-imagenet": 3000}
_EXAMPLES = 500  # of each class, that these runs read


def duration_note(jobs: Iterable[Job]) -> str:
    """Return, in brackets, about how long runs take on one core; nothing if that is not known.

    >>> duration_note([Job(RunConfig(dataset="cifar10"), 0)] * 153)
    ' (about 2 hours on one core)'
    >>> duration_note([Job(RunConfig(dataset="mine"), 0)])
    ''
    """
    configs = [job.config for job in jobs]
    if not all(config.dataset in _SECONDS for config in configs):
        return ""
    minutes = sum(map(_seconds, configs)) / 60
    number, unit = (minutes / 60, "hour") if minutes > 90 else (minutes, "minute")
    rounded = max(1, round(number))
    return f" (about {rounded} {unit}{'s' if rounded > 1 else ''} on one core)"


def _seconds(config: RunConfig) -> float:
    seconds = _SECONDS[config.dataset]
    if config.evaluation.shift_images is not None:
        seconds += _SHIFT_SECONDS[config.dataset]
    return max(4, seconds * min(1, config.stream.examples_per_class / _EXAMPLES))
