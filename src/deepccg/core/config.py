"""The base of every configuration: frozen, typed, and closed to unknown keys."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen set of documented fields; their descriptions become help and documentation.

    Numbers are finite: infinity is no step size, and JSON has no word for it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    first_fields: ClassVar[tuple[str, ...]] = ()  # listed first by `deepccg methods`; (): all alike
