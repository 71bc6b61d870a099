"""Calls of one model from several threads take turns."""

from threading import Lock, RLock, get_ident
from types import TracebackType

NAME = "_turns"  # of a model's attribute


class Turns:
    """A lock that its holder may take again, and that threads which wait get in turn.

    A plain lock is taken again by a thread that learns in a loop before one that waits has woken
    up: a prediction then waited for hundreds of steps.
    """

    def __init__(self) -> None:
        self._next, self._own = Lock(), RLock()  # of who waits longest, of whose turn it is
        self._holder: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._holder == get_ident():
            self._own.acquire()
        else:
            with self._next:
                self._own.acquire()
            self._holder = get_ident()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
        self._own.release()


def turns(model: object) -> Turns:
    """Return the lock of a model; copies leave it out and get their own.

    It is made at its first use: scikit-learn allows a constructor to set parameters only.
    """
    attributes = vars(model)
    found: Turns | None = attributes.get(NAME)
    return attributes.setdefault(NAME, Turns()) if found is None else found
