"""Errors a user can act on. The command line prints each as one line and exits with status 2."""

LONGEST = 2000  # characters of a message; beyond it the middle is left out


class DeepCCGError(Exception):
    r"""Base of every error that says what was wrong and what to do, in one line.

    Messages quote what is wrong, and that may hold anything: line ends, control characters, a
    megabyte.

    >>> print(InputError("unknown data set 'a\nb'"))
    unknown data set 'a b'
    """

    def __str__(self) -> str:
        text = "".join(c if c.isprintable() else " " for c in super().__str__())
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-200:]}"


class InputError(DeepCCGError, ValueError):
    """Data, a field or a path that cannot be used."""


class StateMismatch(DeepCCGError, ValueError):
    """A saved state that belongs to another method, shape or version."""


class SecondRead(DeepCCGError, RuntimeError):
    """A training example was read twice: the protocol is a single pass."""


class ProtocolViolation(DeepCCGError, RuntimeError):
    """A run broke a rule of its protocol."""


class TaskRequired(DeepCCGError, RuntimeError):
    """The method cannot predict without a task."""


class Diverged(DeepCCGError, RuntimeError):
    """The loss or the weights are no longer finite."""


class CannotWrite(DeepCCGError, RuntimeError):
    """A run could not write, for example to a full disk; what it saved before is intact."""


class InUse(DeepCCGError, RuntimeError):
    """Another process is writing to the same run directory."""
