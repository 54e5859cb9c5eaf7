"""What an archive or object store has that is not read as it is: nothing is skipped in silence."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_FILE_NAME: Final = "left out, because no file can have this name"
_MOST_PROBLEMS: Final = 100


class PlaceProblem(NamedTuple):
    """Something that is not read as it is.

    Attributes:
        what: for people, with its name.
        is_failure: whether something is missing because of it.
        is_cut: whether nobody can say how much: the place did not come whole.
    """

    what: str
    is_failure: bool = True
    is_cut: bool = False


def note_problem(
    problems: dict[str, PlaceProblem],
    what: str,
    *,
    is_failure: bool = True,
    is_cut: bool = False,
) -> None:
    """Note a problem once; of very many, only that there are more."""
    if len(problems) >= _MOST_PROBLEMS and not is_cut:
        what, is_failure = "there is more of this kind", True
    problems.setdefault(what, PlaceProblem(what, is_failure, is_cut))
