"""What all commands have in common: how their options are shown."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command that shows what its options take, and what they are if not given."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, that of the help included."""
        return _explained(super().get_params(ctx))


class Group(TyperGroup):
    """The program itself, as ``Command``."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of every command."""
        return _explained(super().get_params(ctx))


def _explained(params: list[Any]) -> list[Any]:
    """Flags take no value, so they show no type; an option that is off by default says so."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.default is None and not isinstance(param.show_default, str):
            param.show_default = None if param.required else "none"
    return params
