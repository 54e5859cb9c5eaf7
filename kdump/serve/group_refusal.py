"""Why a member of a group is refused."""

from __future__ import annotations

from kio.schema.errors import ErrorCode


class GroupRefusal(Exception):
    """A request of a member is refused.

    Attributes:
        member_id: the id that it should use from now on.
        what: says more to people, where a response has room for that.
    """

    def __init__(self, error: ErrorCode, member_id: str = "", what: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.member_id = member_id
        self.what = what
