"""What a learner can reach: in its attributes, its classes, and what its code names."""

import contextlib
import gc
import logging
import multiprocessing.process
import subprocess
import sys
import weakref
from abc import ABC
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, Generic, cast

import numpy as np
import torch
from torch import Tensor, nn

from deepccg.core import Learner
from deepccg.experiment.audit.contents import Form, Read, numbers_in, pickles_itself, reader_of
from deepccg.experiment.audit.examples import Values
from deepccg.experiment.audit.own_code import OwnCode, root_module

_ENDS = (
    bool, int, float, complex, type(None), np.generic, np.dtype, torch.dtype, torch.device,
    torch.Generator, CodeType, weakref.ref,  # nothing of interest is behind these,
    ModuleType, FrameType, TracebackType, logging.Filterer, logging.Manager,  # and all behind these
)  # fmt: skip
_COLLECTIONS = (list, tuple, deque, set, frozenset, dict)
_REGISTRIES = ("_parameters", "_buffers", "_modules")  # of a module of torch
_NOT_OPENED = ("__annotations__", "__doc__", "__orig_bases__", "__parameters__")  # of a class
_PROCESSES = (subprocess.Popen, multiprocessing.process.BaseProcess)


@dataclass(frozen=True)
class Part:
    """Values in reach."""

    name: str  # of the attribute or variable that leads to them
    values: Values
    form: Form
    start: int  # where they lie in memory
    nbytes: int


@dataclass(frozen=True)
class _Kind:
    """What to do with things of a class; asked of the class, as a proxy lies about its own."""

    ends: bool  # the walk
    is_class: bool
    is_function: bool
    collection: type | None  # that it is one of
    is_process: bool
    named: bool  # whether its attributes' names mean something to the user
    pickles: bool
    reader: Callable[[Any], Read] | None


class Reach:
    """Walks everything that can be reached from a learner, each thing once.

    Libraries end the walk: their modules, their classes, and what their functions name.

    Args:
        learner: Where to begin.
        code: Whether to look into its classes and functions as well.
    """

    def __init__(self, learner: object, code: bool = True) -> None:
        self.processes: list[str] = []  # in reach: nobody can read their memory
        self._code = OwnCode(type(learner)) if code else None
        self._waiting: deque[tuple[str, object]] = deque()
        self._visited: dict[int, object] = {}  # kept, so that no other thing gets its id
        self._kinds: dict[type, _Kind] = {}
        # What a module holds is only reached by its name.
        modules = list(sys.modules.values())
        self._spaces = {id(getattr(module, "__dict__", None)) for module in modules}
        for key, value in list(_attributes(learner).items()):
            if issubclass(type(value), nn.Module):  # others hold its tensors as well, without names
                self._waiting.extend(named_tensors(f"learner.{key}", value))
        self._waiting.append(("learner", learner))
        for kind in type(learner).__mro__ if code else ():
            if kind not in (object, ABC, Generic):
                self._open_class(kind)
        self.parts = [part for part in self._walk() if part.nbytes]

    def _walk(self) -> Iterator[Part]:
        while self._waiting:
            name, thing = self._waiting.popleft()
            if id(thing) in self._visited or id(thing) in self._spaces:
                continue
            kind = self._kinds.get(type(thing)) or self._new_kind(thing)
            if kind.ends:
                continue
            self._visited[id(thing)] = thing
            if kind.is_class:
                if self._code is not None and root_module(cast(type, thing)) in self._code:
                    self._open_class(cast(type, thing))
            elif kind.is_function:
                self._open_function(cast(FunctionType, thing))
            elif kind.collection is not None:
                for values in _values_in(thing, kind.collection):
                    yield from self._open_values(name, values)
                if type(thing) is not kind.collection:  # a class of its own may have attributes
                    yield from self._open(name, thing, kind)
            else:
                yield from self._open(name, thing, kind)

    def _new_kind(self, thing: object) -> "_Kind":
        kind = type(thing)
        root = root_module(kind)
        own = issubclass(kind, Learner) or (self._code is not None and root in self._code)
        self._kinds[kind] = new = _Kind(
            ends=issubclass(kind, _ENDS) or root == "typing",
            is_class=issubclass(kind, type),
            is_function=issubclass(kind, FunctionType),
            collection=next((each for each in _COLLECTIONS if issubclass(kind, each)), None),
            is_process=issubclass(kind, _PROCESSES),
            named=own or root in ("deepccg", "torch"),
            pickles=pickles_itself(kind),
            reader=reader_of(thing),
        )
        return new

    def _open_values(self, name: str, values: list[object]) -> Iterator[Part]:
        numbers = numbers_in(values)
        if numbers is not None:
            yield part_of(name, numbers)
        else:
            self._waiting.extend((name, value) for value in values)

    def _open(self, name: str, thing: object, kind: "_Kind") -> Iterator[Part]:
        with contextlib.suppress(Exception):  # foreign code may raise anything
            for values, form in kind.reader(thing) if kind.reader is not None else ():
                yield part_of(name, values, form, thing)
            if kind.pickles:  # the garbage collector does not see all that it holds
                self._waiting.append((name, thing.__reduce_ex__(4)))
        if kind.is_process:
            self.processes.append(f"{name} ({type(thing).__name__})")
        if issubclass(type(thing), np.ndarray):
            self._open_array(name, cast("np.ndarray[Any, Any]", thing))
        self._open_attributes(name, thing, kind.named)
        self._waiting.extend((name, value) for value in gc.get_referents(thing))

    def _open_array(self, name: str, array: "np.ndarray[Any, Any]") -> None:
        self._waiting.append((name, array.base))
        if array.dtype.hasobject:
            self._waiting.append((name, array.tolist()))

    def _open_attributes(self, name: str, thing: object, named: bool) -> None:
        """Go on to attributes; what lies within a library's object has the object's name."""
        attributes = _attributes(thing)
        self._visited[id(attributes)] = attributes
        for key, value in list(attributes.items()):
            if key in _REGISTRIES and issubclass(type(value), dict):
                self._visited[id(value)] = value
                self._waiting.extend((f"{name}.{each}", value[each]) for each in list(value))
            else:
                self._waiting.append((f"{name}.{key}" if named else name, value))

    def _open_class(self, kind: type) -> None:
        self._visited[id(kind)] = kind
        for key, value in list(vars(kind).items()):
            if key not in _NOT_OPENED and not key.startswith("__pydantic"):
                self._waiting.append((f"{kind.__qualname__}.{key}", value))

    def _open_function(self, function: FunctionType) -> None:
        """Go on to what a function has closed over, its defaults, attributes and globals."""
        if self._code is None:
            return
        name, closed = function.__qualname__, function.__code__.co_freevars
        for variable, cell in zip(closed, function.__closure__ or (), strict=True):
            self._waiting.append((f"{name}.{variable}", cell))
        self._waiting.append((name, function.__defaults__))
        self._waiting.append((name, function.__kwdefaults__))
        self._waiting.extend(
            (f"{name}.{key}", value) for key, value in list(vars(function).items())
        )
        self._waiting.extend(self._code.named_by(function))


def bytes_by_name(parts: Iterable[Part]) -> dict[str, int]:
    """Return the bytes under each name; what overlaps in memory counts once."""
    held: dict[str, int] = {}
    copies: dict[str, int] = {}
    covered = 0  # memory up to here has been counted
    for part in sorted(parts, key=lambda part: part.start):
        if part.form == "copy":
            copies[part.name] = copies.get(part.name, 0) + part.nbytes
        elif part.form == "held":
            end = part.start + part.nbytes
            held[part.name] = held.get(part.name, 0) + max(0, end - max(covered, part.start))
            covered = max(covered, end)
    return {name: max(held.get(name, 0), copies.get(name, 0)) for name in held | copies}


def searchable(parts: Iterable[Part]) -> list[Values]:
    """Return the values to search for examples, without views that a longer one begins with."""
    chosen: dict[object, list[Values]] = {}
    for values in sorted(
        (part.values for part in parts), key=lambda values: (-values.size, values.ndim == 1)
    ):
        begin = values.__array_interface__["data"][0], values.dtype.str
        others = chosen.setdefault(begin, [])
        if not any(_begins_with(other, values) for other in others):
            others.append(values)
    return [values for others in chosen.values() for values in others]


def _begins_with(longer: Values, values: Values) -> bool:
    return (
        longer.flags.c_contiguous
        and values.flags.c_contiguous
        and (values.ndim == 1 or longer.shape[1:] == values.shape[1:])
    )


def part_of(name: str, values: Values, form: Form = "held", thing: object = None) -> Part:
    """Return ``values`` as a part; all of a tensor's storage counts, however little it shows."""
    if issubclass(type(thing), Tensor) and cast(Tensor, thing).layout == torch.strided:
        storage = cast(Tensor, thing).untyped_storage()
        return Part(name, values, form, storage.data_ptr(), storage.nbytes())
    return Part(name, values, form, values.__array_interface__["data"][0], values.nbytes)


def named_tensors(name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every parameter and buffer of a module called ``name``, with its name."""
    for own in (module.named_parameters(), module.named_buffers()):
        yield from ((f"{name}.{key}", tensor) for key, tensor in own)


def _values_in(thing: Any, collection: Any) -> list[list[object]]:
    """Return what a collection holds; a dictionary holds values and keys."""
    if collection is dict:
        return [list(dict.values(thing)), list(dict.keys(thing))]
    return [list(collection.__iter__(thing))]


def _attributes(thing: object) -> dict[str, Any]:
    with contextlib.suppress(Exception):  # foreign code may raise anything
        attributes = thing.__dict__
        if type(attributes) is dict:
            return attributes
    return {}
