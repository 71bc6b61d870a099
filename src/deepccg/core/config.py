"""The base of every configuration: frozen, typed, and closed to unknown keys."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen set of documented fields; their descriptions become help and documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
