"""The changes of a cluster's metadata as events: what happened, when, and from what to what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from kdump.state.metadata.metadata_entities import NO_LEADER, MetadataTopic, PartitionRegistration
from kdump.state.metadata.metadata_image import EntityKind, MetadataChange, MetadataImage
from kdump.state.metadata.metadata_nodes import BrokerRegistration
from kdump.state.metadata.metadata_rows import changed_fields, entity_row, identity_row

CLEAN: Final = "clean"
UNCLEAN: Final = "unclean"
_RECOVERING: Final = "RECOVERING"
_ASSIGNMENT: Final = ("replicas", "removing_replicas", "adding_replicas")
_ELECTION: Final = ("leader", "leader_epoch", "leader_recovery_state", "isr", "elr")
_IN_SYNC: Final = ("isr", "elr", "last_known_elr")
_UNREPORTED: Final = frozenset({EntityKind.NEXT_PRODUCER_ID})
"""What changes all the time, and tells nothing."""
_FIRST_AND_LAST: Final[Mapping[EntityKind, tuple[str, str, str]]] = {
    EntityKind.CONFIG: ("reconfigured", "reconfigured", "reconfigured"),
    EntityKind.FEATURE: ("enabled", "changed", "disabled"),
    EntityKind.QUOTA: ("added", "changed", "removed"),
    EntityKind.ACL: ("added", "changed", "removed"),
    EntityKind.SCRAM: ("added", "changed", "removed"),
    EntityKind.TOKEN: ("created", "renewed", "removed"),
    EntityKind.CONTROLLER: ("registered", "registered", "unregistered"),
    EntityKind.VOTER: ("added", "changed", "removed"),
    EntityKind.QUORUM_LEADER: ("elected", "elected", "elected"),
}
"""The words for a new entity, a changed one, and one that is gone."""


class MetadataEvent(Struct, frozen=True):
    """Something that happened to the cluster.

    Attributes:
        change: the change in the metadata, with its record.
        event: what happened, in one word.
        old: the fields before; None if the entity is new.
        new: the fields after; None if it is gone.
        election: ``clean`` or ``unclean`` if a leader of a partition was elected.
    """

    change: MetadataChange
    event: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    election: str | None = None

    def row(self) -> dict[str, Any]:
        """The event for output."""
        record = self.change.record
        return {
            "offset": None if record is None else record.offset,
            "epoch": None if record is None else record.epoch,
            "timestamp_ms": None if record is None else record.timestamp_ms,
            "event": self.event,
            **identity_row(self.change),
            "election": self.election,
            "old": self.old,
            "new": self.new,
        }


class MetadataHistory(Struct):
    """Turns changes into events.

    Attributes:
        deleted: the ids of topics that were deleted, by name: a new one of that name is recreated.
    """

    deleted: dict[str, str] = field(default_factory=dict)
    _partitions: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many partitions each topic has, by id."""

    @classmethod
    def after(cls, image: MetadataImage) -> MetadataHistory:
        """The history that goes on from an image."""
        history = cls()
        for topic_id, _ in image.of(EntityKind.PARTITION):
            history._partitions[topic_id] += 1
        return history

    def events_of(self, changes: Sequence[MetadataChange]) -> Iterator[MetadataEvent]:
        """Yield the events of the changes of a batch, or of a metadata transaction, in order.

        The partitions and properties of a topic that is created are part of its creation, and its
        partitions part of its deletion.
        """
        topics = [each for each in changes if each.kind is EntityKind.TOPIC]
        created = {each.key: each for each in topics if each.new is not None}
        deleted = {each.key for each in topics if each.new is None}
        names = {f"topic:{each.topic}" for each in topics}
        self._count_partitions(changes)
        for change in _merged(changes):
            if change.kind is EntityKind.TOPIC:
                yield self._topic_event(change, changes)
            elif change.kind is EntityKind.PARTITION:
                if change.key[0] not in created and change.key[0] not in deleted:
                    yield from _partition_events(change)
            elif change.kind is EntityKind.BROKER:
                yield from _broker_events(change)
            elif change.kind not in _UNREPORTED and not (
                change.kind is EntityKind.CONFIG and change.key in names
            ):
                first, changed, last = _FIRST_AND_LAST[change.kind]
                event = first if change.old is None else last if change.new is None else changed
                yield MetadataEvent(change, event, *changed_fields(change))

    def _count_partitions(self, changes: Iterable[MetadataChange]) -> None:
        for change in changes:
            if change.kind is EntityKind.PARTITION and change.old is None:
                self._partitions[change.key[0]] += 1

    def _topic_event(
        self, change: MetadataChange, changes: Sequence[MetadataChange]
    ) -> MetadataEvent:
        topic: MetadataTopic = change.new or change.old
        configs: dict[str, Any] = {}
        for each in changes:
            if each.kind is EntityKind.CONFIG and each.key == f"topic:{topic.name}":
                configs = entity_row(each.kind, each.old if change.new is None else each.new) or {}
        partitions = self._partitions.get(topic.topic_id, 0)
        fields = {"id": topic.topic_id, "partitions": partitions, "configs": configs}
        if change.new is None:
            self.deleted[topic.name] = topic.topic_id
            self._partitions.pop(topic.topic_id, None)
            return MetadataEvent(change, "deleted", fields, None)
        before = self.deleted.pop(topic.name, None)
        if before is None:
            return MetadataEvent(change, "created", None, fields)
        return MetadataEvent(change, "recreated", {"id": before}, fields)


def _merged(changes: Sequence[MetadataChange]) -> Iterator[MetadataChange]:
    """Yield changes, those of the properties of one resource as one, at the first of them."""
    first: dict[Any, MetadataChange] = {}
    last: dict[Any, MetadataChange] = {}
    for change in changes:
        if change.kind is EntityKind.CONFIG:
            first.setdefault(change.key, change)
            last[change.key] = change
    for change in changes:
        if change.kind is not EntityKind.CONFIG:
            yield change
        elif first[change.key] is change:
            yield change._replace(new=last[change.key].new)


def _partition_events(change: MetadataChange) -> Iterator[MetadataEvent]:
    old: PartitionRegistration | None = change.old
    new: PartitionRegistration | None = change.new
    if old is None or new is None:
        # A partition is gone only with its topic.
        yield MetadataEvent(change, "added", *changed_fields(change))
        return
    before, after = old.row(), new.row()
    changed = {name for name in after if before[name] != after[name]}
    rest = changed - {"partition_epoch"}
    if rest & set(_ASSIGNMENT):
        names = [name for name in (*_ASSIGNMENT, "directories") if name in changed]
        yield _event(change, _assignment_event(old, new), names)
        rest -= {*_ASSIGNMENT, "directories"}
    if "leader_epoch" in rest:
        always = {"leader", "leader_epoch"}
        event, election = _election_of(old, new)
        yield _event(
            change, event, [name for name in _ELECTION if name in changed | always], election
        )
        rest -= {*_ELECTION, "last_known_elr"}
    if "leader_recovery_state" in rest:
        yield _event(change, "recovered", ["leader_recovery_state"])
    if rest & set(_IN_SYNC):
        yield _event(change, "isr_changed", [name for name in _IN_SYNC if name in changed])
    if "directories" in rest:
        yield _event(change, "directories_changed", ["directories"])


def _event(
    change: MetadataChange, event: str, names: Iterable[str], election: str | None = None
) -> MetadataEvent:
    old, new = change.old.row(), change.new.row()
    names = list(names)
    return MetadataEvent(
        change,
        event,
        {name: old[name] for name in names},
        {name: new[name] for name in names},
        election,
    )


def _assignment_event(old: PartitionRegistration, new: PartitionRegistration) -> str:
    if new.adding_replicas or new.removing_replicas:
        return "reassigning"
    before = set(old.replicas) - set(old.adding_replicas)
    was_reassigning = bool(old.adding_replicas or old.removing_replicas)
    if was_reassigning and set(new.replicas) == before:
        return "reassignment_cancelled"
    return "reassigned"


def _election_of(old: PartitionRegistration, new: PartitionRegistration) -> tuple[str, str | None]:
    """The event of a new leader epoch, and whether the election was clean.

    Follows ``PartitionChangeBuilder.electLeader``: after an unclean election the leader is alone in
    the ISR, and recovering. Metadata versions before 3.2 have no recovery state: there it is
    unclean if the leader was not in sync. Where a reassignment ends, the new leader may become in
    sync with the same record.
    """
    if new.leader == NO_LEADER:
        return "leaderless", None
    was_in_sync = new.leader in old.isr or new.leader in old.elr
    is_alone = new.isr == (new.leader,) and new.replicas == old.replicas
    is_recovering = new.leader_recovery_state == _RECOVERING != old.leader_recovery_state
    is_unclean = is_recovering or (is_alone and new.leader != old.leader and not was_in_sync)
    return "elected", UNCLEAN if is_unclean else CLEAN


def _broker_events(change: MetadataChange) -> Iterator[MetadataEvent]:
    old: BrokerRegistration | None = change.old
    new: BrokerRegistration | None = change.new
    fields = changed_fields(change)
    if new is None:
        yield MetadataEvent(change, "unregistered", *fields)
    elif old is None or old.epoch != new.epoch:
        yield MetadataEvent(change, "registered", *fields)
    else:
        if old.in_controlled_shutdown != new.in_controlled_shutdown:
            yield MetadataEvent(change, "shutting_down", *fields)
        elif old.fenced == new.fenced:
            yield MetadataEvent(change, "changed", *fields)
        if old.fenced != new.fenced:
            yield MetadataEvent(change, "fenced" if new.fenced else "unfenced", *fields)
