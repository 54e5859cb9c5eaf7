"""Long searches: a sample of their cases is in the main part, and all are in the soak part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

SAMPLES: Final = 5

at_some_or_all = pytest.mark.parametrize(
    "is_all", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["sampled", "all"]
)
"""Gives a test the argument of :func:`moments_of`: the test is in both parts."""

at_some_or_each_kind = pytest.mark.parametrize(
    "is_each_kind",
    [False, pytest.param(True, marks=pytest.mark.soak)],
    ids=["sampled", "each kind"],
)
"""Gives a test the argument of :func:`moments_of_kinds`: the test is in both parts."""


def moments_of(moments: Sequence[int], *, is_all: bool, samples: int = SAMPLES) -> Sequence[int]:
    """Return all moments, or ``samples`` of them: the first, the last, and others between them."""
    if is_all or len(moments) <= samples:
        return moments
    last = len(moments) - 1
    return [moments[number * last // (samples - 1)] for number in range(samples)]


def moments_of_kinds(
    kinds: Sequence[str], *, is_each_kind: bool, samples: int = SAMPLES
) -> Sequence[int]:
    """Return where the first and the last of each kind are, or ``samples`` moments of all.

    What is done before is then nothing of that kind, or all but one; where something of this kind
    is done a hundred times, what lies between is not tried a hundred times.
    """
    if not is_each_kind:
        return moments_of(range(len(kinds)), is_all=False, samples=samples)
    first = {kind: at for at, kind in reversed([*enumerate(kinds)])}
    last = {kind: at for at, kind in enumerate(kinds)}
    return sorted({*first.values(), *last.values()})


def examples(factor: float) -> int:
    """Return a multiple of the profile's number of examples: the soak part has more of them."""
    return round(factor * settings().max_examples)


def seeds(first: int, *, count: int, in_main: int) -> list[ParameterSet]:
    """Return ``count`` seeds from ``first`` on; the first ``in_main`` are in the main part."""
    return [
        pytest.param(first + at, marks=[pytest.mark.soak] if at >= in_main else [])
        for at in range(count)
    ]
