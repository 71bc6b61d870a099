"""Recording representation shift while a run learns, where its configuration asks for it."""

from deepccg.core import Learner
from deepccg.evaluation import ShiftMeter
from deepccg.experiment.audit.auditor import Auditor
from deepccg.experiment.build import Material
from deepccg.experiment.config import RunConfig
from deepccg.experiment.writer import Journal


class ShiftLog:
    """From the end of the first task on, writes what each batch does to that task's test images.

    The learner is only asked, as in an evaluation: what it learns does not depend on it.

    Args:
        config: Whose scenario says how the images are classified.
        material: Holds the images; where it holds none, nothing is written.
        journal: Where the records go.
        auditor: Counts the network's passes as those of an evaluation.
        learner: As it is after ``position`` steps.
        position: Steps done; not 0 for a run that is continued.
    """

    def __init__(
        self,
        config: RunConfig,
        material: Material,
        journal: Journal,
        auditor: Auditor,
        learner: Learner,
        position: int,
    ) -> None:
        self._mode = config.scenario
        self._test = material.shift
        self._stream = material.stream
        self._journal, self._auditor = journal, auditor
        self._places = {task.id: place for place, task in enumerate(self._stream.tasks)}
        self._begin = _first_task_steps(material)
        self._meter: ShiftMeter | None = None
        if self._test is not None and self._begin <= position < len(self._stream):
            with auditor.asking(counted=False):  # counted before the run was interrupted
                self._meter = ShiftMeter(self._test, self._mode, learner)

    def after(self, step: int, learner: Learner) -> None:
        """Write what ``step`` did; after the last step of the first task, only look."""
        if self._test is None or step < self._begin:
            return
        with self._auditor.asking():
            if self._meter is None:
                self._meter = ShiftMeter(self._test, self._mode, learner)
                return
            task = self._places[self._stream.task_of(step - 1).id]
            shift = self._meter.measure(learner, step=step, task=task)
        self._journal.record(shift)


def _first_task_steps(material: Material) -> int:
    """How many batches come before the first one of another task."""
    stream = material.stream
    steps = range(len(stream))
    first = stream.task_of(0).id
    return next((step for step in steps if stream.task_of(step).id != first), len(stream))
