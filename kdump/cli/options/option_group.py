"""Options that belong together: several commands take them, mostly as one argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])


def options(*each: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options to a command, in the order of its help."""

    def decorate(command: Command) -> Command:
        return functools.reduce(
            lambda decorated, option: option(decorated), reversed(each), command
        )

    return decorate


def option_group(
    argument: str, gather: Callable[..., object], *each: Callable[[Any], Any]
) -> Callable[[Command], Command]:
    """Add options to a command, as one argument.

    Args:
        gather: makes its value; takes those of the options, by name.
        each: the options, in the order of the help.
    """
    names = getattr(gather, "__struct_fields__", None) or tuple(
        inspect.signature(gather).parameters
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_one_argument(*args: Any, **given: Any) -> Any:
            value = gather(**{name: given.pop(name) for name in names})
            return command(*args, **given, **{argument: value})

        return options(*each)(with_one_argument)  # type: ignore[return-value]

    return decorate
