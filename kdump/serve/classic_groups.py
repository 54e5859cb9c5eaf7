"""Groups of the classic protocol in memory: they read, and are forgotten when the server ends.

Follows ``GroupMetadataManager`` and ``ClassicGroup`` of the group coordinator, with no delay before
the first rebalance.
"""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from kdump.serve.group_refusal import GroupRefusal

_LEAST_SESSION_S: Final = 6.0
_LONGEST_SESSION_S: Final = 1800.0


class LiveState(enum.Enum):
    """The state of a group that has members here; the value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


Protocols = Mapping[str, bytes]
"""What a member supports, what it wants most first: names with its metadata for each."""


class LiveMember(Struct):
    """A member.

    Attributes:
        instance_id: of a static member.
        client_id: as the client calls itself.
        session_s: after so long without a word, it has left.
        rebalance_s: so long a rebalance waits for it.
        assignment: what the leader gave it.
        heard_at: when it last said something, by the clock of the loop.
        joining: is done when all members have joined; None if it does not wait for that.
        syncing: the same for the assignments.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_s: float
    rebalance_s: float
    protocols: Protocols
    assignment: bytes = b""
    heard_at: float = 0.0
    joining: asyncio.Future[JoinedGroup] | None = None
    syncing: asyncio.Future[bytes] | None = None

    @property
    def size_bytes(self) -> int:
        """How much it says of itself, and is assigned."""
        return sum(map(len, (*self.protocols, *self.protocols.values(), self.assignment)))

    @property
    def is_waiting(self) -> bool:
        """Whether an answer to it is due: it cannot send heartbeats."""
        return any(each is not None and not each.done() for each in (self.joining, self.syncing))


class JoinedGroup(Struct, frozen=True):
    """What a member learns when all have joined.

    Attributes:
        protocol: that all members support.
        leader: the member that assigns partitions.
        members: all of them, for the leader; none for the others.
    """

    generation: int
    protocol: str
    protocol_type: str
    leader: str
    members: Sequence[tuple[str, str | None, bytes]]


class ClassicGroup(Struct):
    """A group.

    Attributes:
        generation: counts the rebalances.
        protocol_type: what its members are.
        protocol: that all of them support.
        leader: the member that assigns partitions.
        members: by id, as they came.
        expected: ids that were given to members that have not used them yet.
    """

    group_id: str
    state: LiveState = LiveState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, LiveMember] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    _deadline: float = 0.0

    @property
    def has_lived(self) -> bool:
        """Whether it has, or had, members here: then it is not as the disk has it any more."""
        return self.generation > 0

    @property
    def state_name(self) -> str:
        """Its state as Kafka calls it."""
        return self.state.value

    @property
    def members_count(self) -> int:
        """How many members it has, and may get."""
        return len(self.members) + len(self.expected)

    # ---- Joining ----

    async def join(
        self, member: LiveMember, protocol_type: str, *, must_know_id: bool
    ) -> tuple[str, JoinedGroup]:
        """Let a member join, or join again; gives its id when all members have.

        Raises:
            GroupRefusal: it may not.
        """
        if not _LEAST_SESSION_S <= member.session_s <= _LONGEST_SESSION_S:
            raise GroupRefusal(ErrorCode.invalid_session_timeout)
        others = [each for key, each in self.members.items() if key != member.member_id]
        if not member.protocols or (
            others
            and (
                protocol_type != self.protocol_type
                or not _common([*(each.protocols for each in others), member.protocols])
            )
        ):
            raise GroupRefusal(ErrorCode.inconsistent_group_protocol)
        known = self._known(member, must_know_id=must_know_id)
        self.protocol_type = protocol_type
        now = asyncio.get_running_loop().time()
        if known is not None and self._may_stay(known, member):
            known.heard_at = now
            return known.member_id, self._joined(known)
        if known is not None:
            member.assignment = known.assignment
            _cancel(known)
        self.members[member.member_id] = member
        member.heard_at = now
        member.joining = asyncio.get_running_loop().create_future()
        self._prepare()
        return member.member_id, await member.joining

    def _known(self, member: LiveMember, *, must_know_id: bool) -> LiveMember | None:
        """The member as it was before; gives it an id if it is new."""
        if member.instance_id is not None:
            for each in list(self.members.values()):
                if each.instance_id == member.instance_id and each.member_id != member.member_id:
                    if member.member_id:
                        raise GroupRefusal(ErrorCode.fenced_instance_id)
                    self._remove(each.member_id, ErrorCode.fenced_instance_id)
        if member.member_id:
            if member.member_id in self.members:
                return self.members[member.member_id]
            if self.expected.pop(member.member_id, None) is None:
                raise GroupRefusal(ErrorCode.unknown_member_id)
            return None
        first = member.instance_id or member.client_id
        member.member_id = f"{first}-{uuid.uuid4()}"
        if must_know_id and member.instance_id is None:
            now = asyncio.get_running_loop().time()
            self.expected[member.member_id] = now + member.session_s
            raise GroupRefusal(ErrorCode.member_id_required, member.member_id)
        return None

    def _may_stay(self, known: LiveMember, member: LiveMember) -> bool:
        """Whether nothing changes if a member joins again."""
        if dict(known.protocols) != dict(member.protocols) or known.joining is None:
            return False
        is_follower = known.member_id != self.leader
        return self.state is LiveState.COMPLETING or (
            self.state is LiveState.STABLE and is_follower
        )

    def _prepare(self) -> None:
        """Begin a rebalance, or end it if all members have joined."""
        if self.state is not LiveState.PREPARING:
            self.state = LiveState.PREPARING
            longest = max(each.rebalance_s for each in self.members.values())
            self._deadline = asyncio.get_running_loop().time() + longest
            for each in self.members.values():
                if each.syncing is not None and not each.syncing.done():
                    each.syncing.set_exception(GroupRefusal(ErrorCode.rebalance_in_progress))
                each.syncing = None
                if each.joining is not None and each.joining.done():
                    each.joining = None
        if all(each.joining is not None for each in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        """Begin a generation with the members that have joined."""
        if not self.members:
            self.state, self.leader, self.protocol = LiveState.EMPTY, "", ""
            return
        self.generation += 1
        self.state = LiveState.COMPLETING
        self.protocol = self._elected_protocol()
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        now = asyncio.get_running_loop().time()
        self._deadline = now + max(each.rebalance_s for each in self.members.values())
        for each in self.members.values():
            each.heard_at = now
            if each.joining is not None and not each.joining.done():
                each.joining.set_result(self._joined(each))

    def _elected_protocol(self) -> str:
        common = _common([each.protocols for each in self.members.values()])
        votes = Counter(
            next(name for name in each.protocols if name in common)
            for each in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def _joined(self, member: LiveMember) -> JoinedGroup:
        members = [
            (each.member_id, each.instance_id, each.protocols[self.protocol])
            for each in self.members.values()
            if member.member_id == self.leader
        ]
        return JoinedGroup(self.generation, self.protocol, self.protocol_type, self.leader, members)

    # ---- Assignments ----

    async def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes]
    ) -> bytes:
        """The assignment of a member; waits for the leader to give it.

        Raises:
            GroupRefusal: it is not a member of this generation, or a rebalance began.
        """
        member = self.member(member_id, generation)
        if self.state is LiveState.PREPARING:
            raise GroupRefusal(ErrorCode.rebalance_in_progress)
        if self.state is LiveState.STABLE:
            return member.assignment
        if member_id == self.leader:
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
                if each.syncing is not None and not each.syncing.done():
                    each.syncing.set_result(each.assignment)
            self.state = LiveState.STABLE
            return member.assignment
        member.syncing = asyncio.get_running_loop().create_future()
        return await member.syncing

    def member(self, member_id: str, generation: int) -> LiveMember:
        """A member of a generation, which has just said something.

        Raises:
            GroupRefusal: there is none.
        """
        found = self.members.get(member_id)
        if found is None:
            raise GroupRefusal(ErrorCode.unknown_member_id)
        if generation != self.generation:
            raise GroupRefusal(ErrorCode.illegal_generation)
        found.heard_at = asyncio.get_running_loop().time()
        return found

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Note that a member lives.

        Raises:
            GroupRefusal: it is not one of this generation, or should join again.
        """
        self.member(member_id, generation)
        if self.state is LiveState.PREPARING:
            raise GroupRefusal(ErrorCode.rebalance_in_progress)

    # ---- Leaving ----

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Remove a member.

        Raises:
            GroupRefusal: there is none.
        """
        if instance_id is not None and not member_id:
            found = (each for each in self.members.values() if each.instance_id == instance_id)
            member_id = next((each.member_id for each in found), "")
        if self.expected.pop(member_id, None) is not None:
            return
        if member_id not in self.members:
            raise GroupRefusal(ErrorCode.unknown_member_id)
        self._remove(member_id, ErrorCode.unknown_member_id)
        self._after_removal()

    def expire(self, now: float) -> None:
        """Remove the members that were not heard of, and those that a rebalance waits for."""
        self.expected = {key: at for key, at in self.expected.items() if at > now}
        gone = [
            each.member_id
            for each in self.members.values()
            if not each.is_waiting and each.heard_at + each.session_s < now
        ]
        if self.state is LiveState.PREPARING and now > self._deadline:
            gone += [each.member_id for each in self.members.values() if each.joining is None]
        if self.state is LiveState.COMPLETING and now > self._deadline:
            gone += [each.member_id for each in self.members.values() if each.syncing is None]
        for member_id in dict.fromkeys(gone):
            self._remove(member_id, ErrorCode.unknown_member_id)
        if gone:
            self._after_removal()

    def _remove(self, member_id: str, error: ErrorCode) -> None:
        member = self.members.pop(member_id)
        for each in (member.joining, member.syncing):
            if each is not None and not each.done():
                each.set_exception(GroupRefusal(error))

    def _after_removal(self) -> None:
        if self.members:
            self._prepare()
        else:
            self._complete()


def _cancel(member: LiveMember) -> None:
    """End what a member waits for that asks again."""
    for each in (member.joining, member.syncing):
        if each is not None and not each.done():
            each.set_exception(GroupRefusal(ErrorCode.unknown_member_id))


def _common(protocols: Sequence[Protocols]) -> set[str]:
    """The names that all members support."""
    return set.intersection(*map(set, protocols))
