"""The base of every configuration: frozen, typed, closed to unknown keys, with one-line errors."""

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from deepccg.core.errors import InputError
from deepccg.core.suggestions import closest, did_you_mean

MAX_DEPTH = 16  # of nested settings
MAX_INTEGER = 2**63 - 1
MAX_CHARACTERS = 10_000
MAX_QUOTED = 200  # characters of a text that a message quotes in full

ModelT = TypeVar("ModelT", bound=BaseModel)


class Config(BaseModel):
    """A frozen set of documented fields; their descriptions become help and documentation.

    Numbers are finite: infinity is no step size, and JSON cannot write it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    first_fields: ClassVar[tuple[str, ...]] = ()  # listed first by `deepccg methods`; (): all alike


def validated(model: type[ModelT], values: Mapping[str, Any], where: str = "") -> ModelT:
    """Return ``model(**values)``, or raise an ``InputError`` that names the field and its type."""
    check_setting_sizes(values, where)
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(_one_line(error, model, where)) from None


def check_setting_sizes(values: Mapping[str, Any], where: str = "") -> None:
    """Reject settings that are absurdly deep or large, or that no file of settings can hold."""
    pending: list[tuple[tuple[str, ...], Any]] = [((where,) if where else (), values)]
    while pending:
        path, value = pending.pop()
        if len(path) > MAX_DEPTH:
            raise InputError(f"{'.'.join(path[:3])}... is nested too deeply")
        if isinstance(value, Mapping):
            pending += [((*path, str(key)), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            pending += [((*path, str(index)), inner) for index, inner in enumerate(value)]
        elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InputError(f"{'.'.join(path)} is a number of {value.bit_length()} bits")
        elif isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise InputError(f"{'.'.join(path)} is a text of {len(value):,} characters")
        elif isinstance(value, str) and not is_utf8(value):
            raise InputError(f"{'.'.join(path)} is {value!r}, which is not UTF-8: rename it")


def is_utf8(text: str) -> bool:
    """Whether a text can be written down; a file's name may be of bytes that make no text."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def not_a_field(name: str, written: str, known: Sequence[str]) -> str:
    """Return the line for a field that does not exist: which one is meant, or all there are."""
    close = closest(written, known)
    hint = f"did you mean {close}?" if close else f"known: {', '.join(known)}"
    return f"{name} is not a field; {hint}"


def _one_line(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """Return the first of pydantic's complaints, with a hint, as one line."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if not str(part).startswith(("literal[", "constr"))]
    field = ".".join(filter(None, [where, *path[:1]]))
    known = list(model.model_fields)
    if first["type"] == "extra_forbidden":
        siblings = _fields_at(model, path[:-1])
        return not_a_field(".".join(filter(None, [where, *path])), path[-1], siblings)
    if first["type"] == "value_error":
        return f"{field}: {first['msg'].removeprefix('Value error, ')}"
    messages = dict.fromkeys(
        each["msg"].removeprefix("Input should be ")
        for each in error.errors(include_url=False)
        if each["loc"][:1] == first["loc"][:1]
    )
    nested = path[1] if len(path) > 1 and path[0] in known and "." not in path[1] else None
    if nested is not None and isinstance(model.model_fields[path[0]].default, BaseModel):
        field = f"{field}.{nested}"
    hint = _meant(first)
    return f"{field} should be {' or '.join(messages)}; got {_quoted(first['input'])}{hint}"


def _meant(error: ErrorDetails) -> str:
    """Return a hint, where the value should have been one of a few words."""
    if error["type"] != "literal_error" or not isinstance(error["input"], str):
        return ""
    return did_you_mean(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))


def _quoted(value: object) -> str:
    """Return a short representation of any value."""
    in_full = isinstance(value, str) and len(value) < MAX_QUOTED
    return repr(value) if in_full else reprlib.repr(value)


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the fields of the nested model at ``path``."""
    for part in path:
        inner = model.model_fields[part].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return list(model.model_fields)
