"""Recording representation shift during a run whose configuration asks for it."""

from deepccg.core import Learner
from deepccg.evaluation import ShiftMeter
from deepccg.experiment.audit.auditor import Auditor
from deepccg.experiment.build import RunData
from deepccg.experiment.config import RunConfig
from deepccg.experiment.writer import RunWriter


class ShiftRecorder:
    """After the first task, records what each batch does to that task's test images.

    The learner only predicts, as in an evaluation: what it learns does not depend on this.

    Args:
        config: Its scenario decides how the images are classified.
        data: Holds the images; without images nothing is recorded.
        writer: Writes the records.
        auditor: Counts the network's passes as those of an evaluation.
        learner: The learner after ``position`` steps.
        position: Steps done; not 0 for a run that is continued.
    """

    def __init__(
        self,
        config: RunConfig,
        data: RunData,
        writer: RunWriter,
        auditor: Auditor,
        learner: Learner,
        position: int,
    ) -> None:
        self._mode = config.scenario
        self._test = data.shift_images
        self._stream = data.stream
        self._writer, self._auditor = writer, auditor
        self._places = {task.id: place for place, task in enumerate(self._stream.tasks)}
        self._begin = _first_task_steps(data)
        self._meter: ShiftMeter | None = None
        if self._test is not None and self._begin <= position < len(self._stream):
            with auditor.observing(counted=False):  # counted before the run was interrupted
                self._meter = ShiftMeter(self._test, self._mode, learner)

    def after(self, step: int, learner: Learner) -> None:
        """Record what ``step`` did; the last step of the first task only sets the reference."""
        if self._test is None or step < self._begin:
            return
        with self._auditor.observing():
            if self._meter is None:
                self._meter = ShiftMeter(self._test, self._mode, learner)
                return
            task = self._places[self._stream.task_of(step - 1).id]
            shift = self._meter.measure(learner, step=step, task=task)
        self._writer.record(shift)


def _first_task_steps(data: RunData) -> int:
    """Return how many batches come before the first one of another task."""
    stream = data.stream
    steps = range(len(stream))
    first = stream.task_of(0).id
    return next((step for step in steps if stream.task_of(step).id != first), len(stream))
