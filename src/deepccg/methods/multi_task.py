"""Multi-Task: SGD on all data at once, several times. The offline reference of the tables."""

from deepccg.methods.sgd import SGD


class MultiTask(SGD):
    """Multi-Task: SGD on the pooled, shuffled data of all tasks. Offline; not an online method.

    The learner is SGD; what makes it Multi-Task is the joint stream that its presets choose
    (``stream.joint``, ``stream.epochs``): two epochs with each example masked to its own task, or,
    class-incrementally, three epochs on all data without masks.

    Reference: the row "Multi-Task" of Lee & Storkey, AISTATS 2024, Table 1.
    """
