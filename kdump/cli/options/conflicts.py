"""Usage errors about options that exclude or require each other."""

from __future__ import annotations

from collections.abc import Mapping

from kdump.errors import UsageProblem


def require_at_most_one(given: Mapping[str, object]) -> None:
    """Refuse options that exclude each other.

    Args:
        given: the options as typed, each with whether it was given.

    Raises:
        UsageProblem: more than one was given.
    """
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise UsageProblem(f"{names[0]} and {names[1]} are mutually exclusive")


def require_with(needed: str, given: Mapping[str, object]) -> None:
    """Refuse options that have no effect without ``needed``, which was not given.

    Args:
        needed: the option that the others require.
        given: the others as typed, each with whether it was given.

    Raises:
        UsageProblem: one of them was given.
    """
    for name, is_given in given.items():
        if is_given:
            raise UsageProblem(f"{name} requires {needed}")
