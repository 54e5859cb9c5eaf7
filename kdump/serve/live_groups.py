"""The groups whose members read here, of the classic and of the consumer protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from kdump.serve.classic_groups import ClassicGroup
from kdump.serve.consumer_groups import ConsumerGroup
from kdump.serve.group_refusal import GroupRefusal

_GLANCE_S: Final = 0.5
_MOST_GROUPS: Final = 10_000
"""So many groups are remembered after their members have left."""
_LARGEST_NAMES: Final = 8 << 20
"""So long may be the names of all these together."""
_LARGEST_MEMBERS_BYTES: Final = 32 << 20
"""So large may be what all members of the classic protocol say of themselves, and are assigned."""
MOST_MEMBERS: Final = 500
"""So many members of all groups together."""
LARGEST_MEMBER_BYTES: Final = 256 << 10
"""So large may be what a member says of itself."""


def _no_consumers(group_id: str) -> GroupRefusal:
    what = f"Group {group_id} is not a consumer group."
    return GroupRefusal(ErrorCode.group_id_not_found, what=what)


class LiveGroups(Struct):
    """The groups that have, or had, members here.

    A group without members can be joined by either protocol.
    """

    by_id: dict[str, ClassicGroup | ConsumerGroup] = field(default_factory=dict)
    _watch: asyncio.Task[None] | None = None

    def classic(self, group_id: str) -> ClassicGroup:
        """The group of a member of the classic protocol.

        Raises:
            GroupRefusal: it has none.
        """
        found = self.by_id.get(group_id)
        if not isinstance(found, ClassicGroup):
            raise GroupRefusal(ErrorCode.unknown_member_id)
        return found

    def consumers(self, group_id: str) -> ConsumerGroup:
        """The group of a member of the consumer protocol.

        A member from before the cluster died is unknown, so that it joins again.

        Raises:
            GroupRefusal: it has none.
        """
        found = self.by_id.get(group_id)
        if found is None:
            raise GroupRefusal(ErrorCode.unknown_member_id)
        if not isinstance(found, ConsumerGroup):
            raise _no_consumers(group_id)
        return found

    def classic_to_join(self, group_id: str) -> ClassicGroup:
        """The group that a member of the classic protocol joins.

        Raises:
            GroupRefusal: it has members of the other protocol, or there are too many members.
        """
        self._admit(group_id)
        found = self.by_id.get(group_id)
        if not isinstance(found, ClassicGroup):
            if found is not None and found.members:
                raise GroupRefusal(ErrorCode.inconsistent_group_protocol)
            found = self.by_id[group_id] = ClassicGroup(group_id)
        return found

    def consumers_to_join(
        self, group_id: str, member_id: str, partitions: Mapping[str, int]
    ) -> ConsumerGroup:
        """The group that a member of the consumer protocol joins, or joins again.

        Raises:
            GroupRefusal: it has members of the other protocol, or there are too many members.
        """
        found = self.by_id.get(group_id)
        if not isinstance(found, ConsumerGroup):
            if found is not None and found.members_count:
                raise _no_consumers(group_id)
            self._admit(group_id)
            found = self.by_id[group_id] = ConsumerGroup(group_id, partitions)
        elif member_id not in found.members:
            self._admit(group_id)
        return found

    def _admit(self, group_id: str) -> None:
        if not group_id:
            raise GroupRefusal(ErrorCode.invalid_group_id)
        count = sum(each.members_count for each in self.by_id.values())
        if count >= MOST_MEMBERS or (group_id not in self.by_id and not self._has_room(group_id)):
            raise GroupRefusal(ErrorCode.group_max_size_reached)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._expire())

    def _has_room(self, group_id: str) -> bool:
        names = len(group_id) + sum(map(len, self.by_id))
        return len(self.by_id) < _MOST_GROUPS and names <= _LARGEST_NAMES

    def require_room(self, size_bytes: int) -> None:
        """Check that there is room for what a member says, or a leader assigns.

        Raises:
            GroupRefusal: there is not.
        """
        held = sum(
            each.size_bytes
            for group in self.by_id.values()
            if isinstance(group, ClassicGroup)
            for each in group.members.values()
        )
        if held + size_bytes > _LARGEST_MEMBERS_BYTES:
            raise GroupRefusal(ErrorCode.invalid_request)

    def close(self) -> None:
        """Stop watching over members."""
        if self._watch is not None:
            self._watch.cancel()

    async def _expire(self) -> None:
        clock: Callable[[], float] = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_GLANCE_S)
            for group_id, group in list(self.by_id.items()):
                group.expire(clock())
                if not group.has_lived and not group.members_count:
                    del self.by_id[group_id]
