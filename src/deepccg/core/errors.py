"""Errors a user can act on. The command line prints each as one line and exits with status 2."""


class DeepCCGError(Exception):
    """Base of every error that says what was wrong and what to do."""


class InputError(DeepCCGError, ValueError):
    """Data, a field or a path that cannot be used."""


class StateMismatch(DeepCCGError, ValueError):
    """A saved state that belongs to another method, shape or version."""


class SecondRead(DeepCCGError, RuntimeError):
    """A training example was asked for twice: the protocol is a single pass."""


class TaskRequired(DeepCCGError, RuntimeError):
    """The method cannot predict without being told the task."""


class Diverged(DeepCCGError, RuntimeError):
    """The loss or the weights are no longer finite."""
