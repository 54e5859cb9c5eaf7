"""Groups of the consumer protocol in memory: they read, and are forgotten when the server ends.

Follows ``GroupMetadataManager``, ``ConsumerGroup`` and ``CurrentAssignmentBuilder`` of the group
coordinator (KIP-848): members say what they subscribe to, the server decides what each shall have,
and a partition passes to another member only after the one that had it has given it up.
"""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import re2
from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from kdump.formats.names import TopicPartition
from kdump.serve.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from kdump.serve.group_refusal import GroupRefusal

JOINING: Final = 0
"""The epoch of a member that joins, or joins again."""
LEAVING: Final = -1
"""The epoch of a member that leaves."""
AWAY: Final = -2
"""The epoch of a static member that leaves and will come back."""
HEARTBEAT_S: Final = 5.0
"""Follows ``group.consumer.heartbeat.interval.ms``."""
SESSION_S: Final = 45.0
"""Follows ``group.consumer.session.timeout.ms``."""


class MemberState(enum.Enum):
    """How far a member is on its way to what it shall have; the value is Kafka's name for it."""

    STABLE = "stable"
    UNREVOKED = "unrevoked_partitions"
    UNRELEASED = "unreleased_partitions"


class Said(Struct, frozen=True):
    """What a member says in a heartbeat; None for what has not changed.

    Attributes:
        epoch: its epoch, or that it joins or leaves.
        owned: the partitions that it reads.
    """

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_s: float | None = None
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it repeats everything, so that the answer does, too."""
        is_subscribed = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_s is not None and is_subscribed and self.owned is not None


class ConsumerMember(Struct):
    """A member.

    Attributes:
        topics: what it subscribes to, of the topics that there are.
        assigned: what it may read, with the epochs at which it got them.
        revoked: what it should give up, likewise.
        heard_at: when it last said something, by the clock of the loop.
        revoke_by: when it must have given that up.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_s: float = 0.0
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    assignor: str | None = None
    topics: frozenset[str] = frozenset()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: dict[TopicPartition, int] = field(default_factory=dict)
    revoked: dict[TopicPartition, int] = field(default_factory=dict)
    heard_at: float = 0.0
    revoke_by: float = 0.0

    def epoch_of(self, key: TopicPartition) -> int | None:
        """Since when it may commit offsets of a partition; None if it may not."""
        return self.assigned.get(key, self.revoked.get(key))


class ConsumerGroup(Struct):
    """A group.

    Attributes:
        partitions: the number of partitions of each topic that can be assigned.
        epoch: counts the changes of its members and their subscriptions.
        assignment_epoch: of the targets.
        members: by id, as they came.
        targets: what each member shall have.
    """

    group_id: str
    partitions: Mapping[str, int]
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)

    @property
    def has_lived(self) -> bool:
        """Whether it has, or had, members here: then it is not as the disk has it any more."""
        return self.epoch > 0

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def state_name(self) -> str:
        """Its state as Kafka calls it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(
            each.state is MemberState.STABLE and each.epoch == self.assignment_epoch
            for each in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members want."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    # ---- Heartbeats ----

    def heartbeat(self, said: Said) -> tuple[ConsumerMember, bool]:
        """Take what a member says; gives it, and whether it needs to hear what it may read.

        Raises:
            GroupRefusal: it may not be, or is no longer, a member.
        """
        matching_topics(
            said.topic_regex or "", ()
        )  # a wrong one is refused before anything changes
        member = self._member(said)
        before = set(member.assigned)
        self._update(member, said)
        if self.assignment_epoch < self.epoch:
            self._assign()
        self._reconcile(member, said.owned)
        member.heard_at = asyncio.get_running_loop().time()
        is_changed = before != set(member.assigned)
        return member, said.epoch == JOINING or said.is_complete or is_changed

    def leave(self, said: Said) -> None:
        """Let a member go, or a static one be away until its session ends.

        Raises:
            GroupRefusal: there is none.
        """
        if said.instance_id is None:
            member = self._known(said.member_id)
        else:
            member = self._static(said.instance_id, said.member_id)
        if said.epoch == AWAY:
            member.epoch, member.revoked = AWAY, {}
            member.state = MemberState.STABLE
        else:
            self._remove(member)

    def _member(self, said: Said) -> ConsumerMember:
        """The member that speaks; a new one if it joins."""
        if said.epoch == JOINING:
            return self._joining(said)
        member = (
            self._known(said.member_id)
            if said.instance_id is None
            else self._static(said.instance_id, said.member_id)
        )
        # The answer with its new epoch may have been lost.
        is_late = (
            said.epoch == member.previous_epoch
            and said.owned is not None
            and said.owned <= member.assigned.keys()
        )
        if said.epoch != member.epoch and not (said.epoch < member.epoch and is_late):
            raise GroupRefusal(ErrorCode.fenced_member_epoch)
        return member

    def _joining(self, said: Said) -> ConsumerMember:
        member_id = said.member_id or str(uuid.uuid4())
        if said.instance_id is not None:
            for each in self.members.values():
                if each.instance_id == said.instance_id:
                    if each.epoch != AWAY:
                        raise GroupRefusal(ErrorCode.unreleased_instance_id)
                    return self._renamed(each, member_id)
        if member_id not in self.members:
            self.members[member_id] = ConsumerMember(member_id, instance_id=said.instance_id)
            self.epoch += 1
        return self.members[member_id]

    def _renamed(self, member: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member that is back, under its new id."""
        del self.members[member.member_id]
        target = self.targets.pop(member.member_id, frozenset())
        member.member_id, member.epoch, member.previous_epoch = member_id, JOINING, JOINING
        self.members[member_id], self.targets[member_id] = member, target
        return member

    def _known(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise GroupRefusal(ErrorCode.unknown_member_id)
        return found

    def _static(self, instance_id: str, member_id: str) -> ConsumerMember:
        own = [each for each in self.members.values() if each.instance_id == instance_id]
        if not own:
            raise GroupRefusal(ErrorCode.unknown_member_id)
        if own[0].member_id != member_id:
            raise GroupRefusal(ErrorCode.fenced_instance_id)
        return own[0]

    def _update(self, member: ConsumerMember, said: Said) -> None:
        """Keep what a member says of itself."""
        member.client_id, member.client_host = said.client_id, said.client_host
        if said.rack_id is not None:
            member.rack_id = said.rack_id
        if said.rebalance_s is not None:
            member.rebalance_s = said.rebalance_s
        if said.assignor is not None:
            member.assignor = said.assignor
        if said.topic_names is not None:
            member.topic_names = said.topic_names
        if said.topic_regex is not None:
            member.topic_regex = said.topic_regex
        if said.topic_names is not None or said.topic_regex is not None:
            topics = frozenset(member.topic_names & self.partitions.keys())
            topics |= matching_topics(member.topic_regex, self.partitions)
            if topics != member.topics:
                member.topics = topics
                self.epoch += 1

    # ---- What members have, and shall have ----

    def _assign(self) -> None:
        """Decide what each member shall have."""
        members = [
            Subscriber(
                each.member_id,
                each.instance_id,
                each.topics,
                self.targets.get(each.member_id, frozenset()),
            )
            for each in self.members.values()
        ]
        self.targets = ASSIGNORS[self.assignor](members, self.partitions)
        self.assignment_epoch = self.epoch

    def _reconcile(self, member: ConsumerMember, owned: frozenset[TopicPartition] | None) -> None:
        """Bring a member nearer to what it shall have.

        Args:
            owned: what it reads; None if it does not say.
        """
        if member.state is MemberState.STABLE and member.epoch == self.assignment_epoch:
            return
        if member.state is MemberState.UNREVOKED and _has_any(owned, member.revoked):
            return
        target = self.targets[member.member_id]
        kept = {key: epoch for key, epoch in member.assigned.items() if key in target}
        revoked = {key: epoch for key, epoch in member.assigned.items() if key not in target}
        if revoked and _has_any(owned, revoked):
            member.state, member.revoked = MemberState.UNREVOKED, revoked
            member.revoke_by = asyncio.get_running_loop().time() + member.rebalance_s
        else:
            held = {
                key
                for each in self.members.values()
                if each is not member
                for key in (*each.assigned, *each.revoked)
            }
            kept |= dict.fromkeys(target - kept.keys() - held, self.assignment_epoch)
            is_whole = kept.keys() == target
            member.state = MemberState.STABLE if is_whole else MemberState.UNRELEASED
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
            member.revoked = {}
        member.assigned = kept

    def expire(self, now: float) -> None:
        """Remove the members that were not heard of, and those that do not give up partitions."""
        for each in list(self.members.values()):
            is_late = each.state is MemberState.UNREVOKED and now > each.revoke_by
            if is_late or now > each.heard_at + SESSION_S:
                self._remove(each)

    def _remove(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        self.epoch += 1


def _has_any(
    owned: frozenset[TopicPartition] | None, partitions: Mapping[TopicPartition, int]
) -> bool:
    """Whether a member has any of these partitions; so it has if it does not say."""
    return owned is None or any(key in owned for key in partitions)


def matching_topics(regex: str, topics: Iterable[str]) -> frozenset[str]:
    """The topics whose whole names match a regular expression of RE2; none match an empty one.

    Raises:
        GroupRefusal: it is none.
    """
    if not regex:
        return frozenset()
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(regex, options=options)
    except re2.error:
        what = f"SubscribedTopicRegex `{regex}` is not a valid regular expression."
        raise GroupRefusal(ErrorCode.invalid_regular_expression, what=what) from None
    return frozenset(each for each in topics if pattern.fullmatch(each))
