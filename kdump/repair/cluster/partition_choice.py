"""Replicas, leader, epochs and directories of a topic's partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.errors import UsageProblem
from kdump.formats.directory_ids import is_reserved_text
from kdump.formats.names import PartitionState
from kdump.ranges import joined
from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import DiskReplica, Evidence, place_of
from kdump.repair.cluster.notice_codes import NoticeCode, Notices
from kdump.repair.cluster.overrides import Overrides
from kdump.repair.cluster.topic_choice import TopicChoice
from kdump.state.epochs.follower_truncation import LoadedReplica, lost_as_follower
from kdump.state.metadata.cluster_plan import (
    PlannedConfig,
    PlannedTopicPartition,
    SeenPartition,
    SeenReplica,
    Source,
    SourceKind,
)
from kdump.state.metadata.config_keys import CLEANUP_POLICY, REMOTE_STORAGE_ENABLE, is_true
from kdump.state.metadata.metadata_entities import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    PartitionRegistration,
)
from kdump.words import counted

MOST_EPOCH: Final = 2**31 - 1
_RECOVERED: Final = "RECOVERED"
_COMPACT: Final = "compact"


class PartitionPlanner(Struct):
    """Plans the partitions of a topic.

    Attributes:
        copy_source: the source of what comes from the chosen copy.
        missing: the log directories that were not collected, by node.
        seen: what the disks have of the partitions that were planned.
    """

    evidence: Evidence
    copy_source: Source
    overrides: Overrides
    notices: Notices
    missing: Mapping[int, frozenset[str]]
    seen: list[SeenPartition] = field(default_factory=list)

    def plan(self, topic: TopicChoice) -> tuple[PlannedTopicPartition, ...]:
        """The partitions of a topic, by number.

        Raises:
            UsageProblem: ``--set`` names a leader that is no replica.
        """
        self._require_numbers(topic)
        self._report_lost_strays(topic)
        spare = _usual_replicas(topic)
        return tuple(
            _PartitionChoice(self, topic, number, topic.in_copy.get(number), spare).plan()
            for number in range(topic.count)
        )

    def _require_numbers(self, topic: TopicChoice) -> None:
        said = self.overrides.topic(topic.name)
        for numbers in (said.leaders, said.replicas, said.leader_epochs):
            wrong = [number for number in numbers if number >= topic.count]
            if wrong:
                raise UsageProblem(
                    f"--set topic.{topic.name}.partition.{wrong[0]}: the topic has"
                    f" {counted(topic.count, 'partition')}"
                )

    def _report_lost_strays(self, topic: TopicChoice) -> None:
        """Report partitions whose data is only in directories that a broker does not load."""
        for number, directories in topic.all_directories.items():
            if topic.replicas.get(number):
                continue
            strays = [each for each in directories if each.partition.state is PartitionState.STRAY]
            if strays:
                self.notices.add(
                    notice_codes.STRAY_PARTITION,
                    f"{place_of(strays[0].directory)}: {strays[0].partition.directory}; restore it"
                    " with kdump undelete before the brokers start",
                    topic.name,
                    number,
                    override="stray=keep",
                )


class _PartitionChoice(Struct):
    """Plans one partition.

    Attributes:
        registered: as the chosen copy has it; None if it does not.
        spare: the replicas that the topic's partitions usually have.
        by_node: the directory that counts of each node: of several, the most advanced.
    """

    planner: PartitionPlanner
    topic: TopicChoice
    number: int
    registered: PartitionRegistration | None
    spare: tuple[int, ...]
    by_node: dict[int, DiskReplica] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The partition, as ``--set`` calls it."""
        return f"topic.{self.topic.name}.partition.{self.number}"

    def _notice(self, code: NoticeCode, what: str, override: str | None = None) -> None:
        self.planner.notices.add(code, what, self.topic.name, self.number, override)

    def plan(self) -> PlannedTopicPartition:
        """The partition.

        Raises:
            UsageProblem: ``--set`` gives it an impossible leader or epoch.
        """
        self.by_node = self._one_of_each_node()
        replicas, source = self._replicas()
        leader, isr, leader_source = self._leader(replicas)
        directories, directory_source = self._directories(replicas)
        said = self.planner.overrides.topic(self.topic.name).leader_epochs.get(self.number)
        epoch = _epoch_above_all(self.topic, self.number)
        if said is not None and said < epoch:
            raise UsageProblem(
                f"--set {self.path}.leader_epoch={said}: epoch"
                f" {epoch - 1} is in use, and followers of an epoch below it never get in sync"
            )
        is_as_registered = self.registered is not None and replicas == self.registered.replicas
        self.planner.seen.append(self._seen(isr, epoch - 1))
        self._report_not_loaded(self.by_node.get(leader))
        if leader >= 0:
            self._report_losses(leader, replicas, self.by_node.get(leader))
            self._report_damaged(leader, replicas)
            self._report_lacking(leader, replicas)
            self._report_empty_ahead(leader, replicas)
        return PlannedTopicPartition(
            partition=self.number,
            replicas=replicas,
            directories=directories,
            isr=isr,
            elr=(),
            last_known_elr=(),
            removing_replicas=self.registered.removing_replicas
            if self.registered is not None and is_as_registered
            else (),
            adding_replicas=self.registered.adding_replicas
            if self.registered is not None and is_as_registered
            else (),
            leader=leader,
            leader_recovery_state=_RECOVERED,
            leader_epoch=epoch if said is None else said,
            partition_epoch=_partition_epoch(self.topic, self.number),
            sources={
                "partition": self._existence(),
                "replicas": source,
                "directories": directory_source,
                "leader": leader_source,
                "leader_epoch": Source(SourceKind.RULE, "above all on the disks")
                if said is None
                else Source(SourceKind.SET, "leader epoch"),
            },
        )

    def _seen(self, isr: tuple[int, ...], highest_epoch: int) -> SeenPartition:
        replicas = (SeenReplica(node, *self.by_node[node].end) for node in sorted(self.by_node))
        return SeenPartition(
            self.topic.name,
            self.topic.topic_id,
            self.number,
            isr,
            highest_epoch,
            tuple(replicas),
        )

    def _existence(self) -> Source:
        if self.number in self.topic.in_copy:
            return self.planner.copy_source
        if self.by_node:
            return self.by_node[min(self.by_node)].source
        if self.number in self.topic.in_old_copies:
            return Source(SourceKind.OLD_COPY, "another copy of the metadata")
        if self.number in self.topic.claims:
            return self.topic.counted_by
        return Source(SourceKind.GUESS, "a missing number")

    # --- replicas

    def _one_of_each_node(self) -> dict[int, DiskReplica]:
        """The directory that counts of each node: where there are several, the most advanced."""
        found: dict[int, DiskReplica] = {}
        for each in self.topic.replicas.get(self.number, ()):
            if each.node_id not in found:
                found[each.node_id] = each
                continue
            if each.becomes_stray or each.is_future is not found[each.node_id].is_future:
                continue
            self._notice(
                notice_codes.DUPLICATE_REPLICA,
                f"{found[each.node_id].directory.path} counts, {each.directory.path} does not; the"
                " broker refuses to start with both",
            )
        return found

    def _replicas(self) -> tuple[tuple[int, ...], Source]:
        said = self.planner.overrides.topic(self.topic.name).replicas.get(self.number)
        if said is not None:
            self._report_left_out([self.by_node[n] for n in self.by_node if n not in said])
            return said, Source(SourceKind.SET, "replicas")
        if self.registered is not None:
            extra = self._extra(self.registered)
            source = self.by_node[extra[0]].source if extra else self.planner.copy_source
            return (*self.registered.replicas, *extra), source
        if self.by_node:
            nodes = _rotated(sorted(self.by_node), self.number)
            return nodes, self.by_node[min(self.by_node)].source
        if self.topic.in_old_copies.get(self.number):
            source = Source(SourceKind.OLD_COPY, "another copy of the metadata")
            return self.topic.in_old_copies[self.number][0].replicas, source
        return _rotated(sorted(self.spare), self.number), Source(
            SourceKind.GUESS, "like the topic's other partitions"
        )

    def _report_left_out(self, replicas: Iterable[DiskReplica]) -> None:
        for each in replicas:
            self._notice(
                notice_codes.EXTRA_REPLICA,
                f"{place_of(each.directory)}: its directory becomes -stray: it is no replica by"
                " --set",
            )

    def _extra(self, registered: PartitionRegistration) -> tuple[int, ...]:
        """Nodes that have the partition, and that the copy does not name as replicas."""
        others = [node for node in sorted(self.by_node) if node not in registered.replicas]
        best = max(
            (self.by_node[node].end for node in registered.replicas if node in self.by_node),
            default=None,
        )
        extra = [node for node in others if best is None or self.by_node[node].end > best]
        for node in others:
            what = (
                "it is added to the replicas: it is more advanced than all of them"
                if node in extra
                else "its directory becomes -stray: a replica is as advanced"
            )
            self._notice(
                notice_codes.EXTRA_REPLICA,
                f"{place_of(self.by_node[node].directory)}: {what}",
                override=f"{self.path}.replicas="
                + ",".join(map(str, (*registered.replicas, *others))),
            )
        return tuple(extra)

    def _directories(self, replicas: Iterable[int]) -> tuple[tuple[str, ...], Source]:
        known = {} if self.registered is None else self.registered.directory_of
        found = []
        for node in replicas:
            replica = self.by_node.get(node)
            if replica is not None:
                found.append(replica.directory.directory_id or MIGRATING_DIRECTORY)
            elif self._has_all_disks(node, known.get(node)):
                # The controller assigns one of the broker's directories.
                found.append(MIGRATING_DIRECTORY)
            else:
                found.append(known.get(node, MIGRATING_DIRECTORY))
        source = (
            self.by_node[min(self.by_node)].source if self.by_node else self.planner.copy_source
        )
        return tuple(found), source

    # --- leader

    def _leader(self, replicas: tuple[int, ...]) -> tuple[int, tuple[int, ...], Source]:
        """The leader, the ISR and their source."""
        holders = [node for node in replicas if node in self.by_node]
        said = self.planner.overrides.topic(self.topic.name).leaders.get(self.number)
        if said is not None:
            if said not in replicas:
                raise UsageProblem(
                    f"--set {self.path}.leader={said}: its replicas are"
                    f" {', '.join(map(str, replicas))}"
                )
            return said, (said,), Source(SourceKind.SET, "leader")
        if holders:
            leader = _best(holders, self.by_node, self.registered)
            self._report_future(self.by_node[leader])
            self._report_missing(self.by_node[leader])
            self._report_in_sync_behind(self.by_node[leader])
            self._report_claims_ahead(self.by_node[leader])
            return leader, (leader,), self.by_node[leader].source
        return self._without_data(replicas)

    def _without_data(self, replicas: tuple[int, ...]) -> tuple[int, tuple[int, ...], Source]:
        """A partition that no collected disk has waits for a node, or for an unclean election."""
        known = {} if self.registered is None else self.registered.directory_of
        waiting = tuple(node for node in replicas if not self._has_all_disks(node, known.get(node)))
        if self.registered is not None:
            in_sync = {*self.registered.isr, *self.registered.elr, *self.registered.last_known_elr}
            waiting = tuple(node for node in waiting if node in in_sync) or waiting
        is_known = self.registered is not None or self.number in self.topic.in_old_copies
        choose = f"{self.path}.leader=NODE"
        if waiting and is_known:
            nodes = ", ".join(map(str, waiting))
            what = f"it is offline until node {nodes} starts, whose disks were not collected"
        elif (self.topic.topic_id, self.number) in self.planner.evidence.later_partitions:
            what = f"node {replicas[0]} leads"
            self._notice(notice_codes.LATER_PARTITION, what, override=choose)
            source = Source(SourceKind.RULE, "added after the time of --to")
            return replicas[0], replicas[:1], source
        else:
            waiting = ()
            what = "it has no leader; an unclean election, or --set, starts it empty"
        code = notice_codes.NO_DATA if is_known else notice_codes.HOLE
        self._notice(code, what, override=choose)
        return NO_LEADER, waiting[:1], Source(SourceKind.GUESS, "no collected disk has it")

    def _has_all_disks(self, node: int, directory_id: str | None) -> bool:
        """Whether everything that a node may have of a replica was collected.

        Args:
            directory_id: of the log directory that the copy assigns; None if it does not say.
        """
        if node not in self.planner.evidence.nodes:
            return False
        missing = self.planner.missing.get(node, frozenset())
        if directory_id is None or is_reserved_text(directory_id):
            return not missing
        return directory_id not in missing

    def _report_future(self, leader: DiskReplica) -> None:
        if leader.is_future:
            self._notice(
                notice_codes.FUTURE_ONLY,
                f"{place_of(leader.directory)}: {leader.partition.directory} becomes the log, and"
                f" ends at {_log_of(leader).log_end_offset}; a log that another disk of the node"
                " has is deleted",
            )

    def _report_missing(self, leader: DiskReplica) -> None:
        """Report replicas on disks that were not collected, and that may have more."""
        if self.registered is None:
            return
        known = self.registered.directory_of
        in_sync = {*self.registered.isr, *self.registered.elr}
        absent = [
            node
            for node in sorted({*self.registered.replicas, *in_sync})
            if (node not in self.by_node or self.by_node[node].is_future)
            and not self._has_all_disks(node, known.get(node))
        ]
        log = _log_of(leader)
        committed = max(each.partition.high_watermark or 0 for each in self.by_node.values())
        if leader.node_id not in in_sync or leader.is_future:
            what = "in sync"
            absent = [node for node in absent if node in in_sync]
        elif leader.highest_epoch > self.registered.leader_epoch:
            what = f"perhaps in sync, because epoch {leader.highest_epoch} is not in the copy"
        elif log.log_end_offset < committed:
            what = f"not behind, because offsets before {committed} were committed"
        elif self._outlived(leader, absent):
            what = f"perhaps ahead, because node {leader.node_id} may have been killed before them"
        else:
            return
        if absent:
            self._notice(
                notice_codes.ISR_NOT_COLLECTED,
                f"{what}: {', '.join(map(str, absent))}; node {leader.node_id} leads, and offsets"
                f" from {log.log_end_offset} on are lost",
            )

    def _outlived(self, leader: DiskReplica, absent: Sequence[int]) -> bool:
        """Whether nodes that were not collected may have gone on after the leader had ended.

        A node that is stopped leaves those in sync first, unless it is the last of them. One that
        is killed is in sync for good, by its own copy of the metadata.
        """
        copies = {each.directory.node_id for each in self.planner.evidence.copies}
        return (
            not leader.directory.is_clean_shutdown
            and not copies - {leader.node_id}
            and not self.planner.evidence.nodes & {*absent}
        )

    def _report_in_sync_behind(self, leader: DiskReplica) -> None:
        """Report in-sync replicas that all end before a leader that was not in sync.

        In its epoch a leader has everything that its followers have. So the disks of those in sync
        are of an earlier time, were replaced, or have lost the end of the log; unless one of them
        led after the leader of the plan had left, elected uncleanly, and ends where it began.
        """
        if self.registered is None or leader.is_future:
            return
        in_sync = {*self.registered.isr, *self.registered.elr}
        is_later = leader.end[0] > self.registered.leader_epoch
        if is_later or not in_sync or leader.node_id in in_sync:
            return
        known = self.registered.directory_of
        ends: dict[int, int] = {}
        for node in sorted(in_sync):
            replica = self.by_node.get(node)
            is_absent = replica is None and not self._has_all_disks(node, known.get(node))
            if is_absent or (replica is not None and replica.end >= leader.end):
                return
            if replica is not None and _led_later(replica, leader):
                return
            ends[node] = _log_of(replica).log_end_offset
        behind = ", ".join(f"node {node}, which ends at {ends[node]}" for node in ends)
        self._notice(
            notice_codes.ISR_BEHIND,
            f"in sync: {behind}; node {leader.node_id} leads, and offsets from"
            f" {_log_of(leader).log_end_offset} on may be lost; if there is a newer disk, collect"
            " it instead",
        )

    def _report_claims_ahead(self, leader: DiskReplica) -> None:
        claims = self.topic.claims.get(self.number, ())
        offset = max((each.highest_offset or 0 for each in claims), default=0)
        end = 0 if leader.loaded is None else leader.loaded.log_end_offset
        if offset > end:
            self._notice(
                notice_codes.BEHIND_COMMITTED,
                f"its log ends at {end}, and an internal topic names offset {offset}",
            )

    def _report_losses(
        self, leader: int, replicas: Sequence[int], winner: DiskReplica | None
    ) -> None:
        """Report the records on any disk that are lost when all replicas follow the leader."""
        log = _log_of(winner)
        for each in self.topic.replicas.get(self.number, ()):
            held = each.held
            if held is None and each is winner:
                what = "a starting broker does not load it, and nothing says which records it has"
            elif held is None:
                what = f"node {leader} leads, and it cannot be read"
            else:
                lost = (*lost_as_follower(held, log), *_doubtful(each, held, log))
                what = _loss(each, lost, leader, winner, replicas) if lost else ""
            self._report_dropped_swap(each, winner)
            if what:
                is_parted = each is not winner and each.loaded is not None
                self._notice(
                    notice_codes.PARTED if is_parted else notice_codes.LOST_AT_START,
                    what if is_parted else f"{place_of(each.directory)}: {what}",
                    override=f"{self.path}.leader={each.node_id}"
                    if is_parted and each.node_id in replicas
                    else None,
                )

    def _report_dropped_swap(self, each: DiskReplica, winner: DiskReplica | None) -> None:
        """Report the records that a start drops from a replica, and the leader does not have."""
        dropped = each.partition.dropped_swaps
        if each is not winner:
            dropped = tuple(_outside(dropped, _log_of(winner)))
        if dropped:
            self._notice(
                notice_codes.LOST_AT_START,
                f"{place_of(each.directory)}: a starting broker drops offsets {_offsets(dropped)}"
                f" with an unfinished swap; {_KEEP_FIRST}",
            )

    def _report_not_loaded(self, leader: DiskReplica | None) -> None:
        """Report records that only directories have which are not the log of a replica."""
        # A leader with damage may lack batches before its end.
        log = NO_RECORDS if leader is None or leader.has_problem else _log_of(leader)
        own = self.topic.replicas.get(self.number, ())
        for each in self.topic.all_directories.get(self.number, ()):
            held, is_stray = each.held, each.partition.state is PartitionState.STRAY
            if each in own or (is_stray and not own):
                continue
            what = "its records"
            if held is not None:
                # What is before the leader's log was deleted.
                start = log.log_start_offset
                lost = [range(max(e.start, start), e.stop) for e in lost_as_follower(held, log)]
                within = () if leader is None else lacked(leader, [each])
                ranges = tuple(joined(filter(None, [*lost, *_doubtful(each, held, log), *within])))
                what = f"offsets {_offsets(ranges)}" if ranges else ""
            if what:
                restore = "restore it with kdump undelete"
                if each.is_future:
                    restore = (
                        f"rename it to {self.topic.name}-{self.number}, in place of any other,"
                    )
                self._notice(
                    notice_codes.STRAY_PARTITION if is_stray else notice_codes.DELETED_REPLICA,
                    f"{place_of(each.directory)}: {each.partition.directory}: {what} may be in no"
                    f" other log; {restore} before the broker starts, and collect again",
                )

    def _report_damaged(self, leader: int, replicas: Iterable[int]) -> None:
        """Report followers whose damage neither a start nor the leader repairs."""
        for node in replicas:
            each = self.by_node.get(node)
            if node == leader or each is None or each.becomes_stray:
                continue
            is_lacking = (
                any(lacked(each, [self.by_node[leader]])) if leader in self.by_node else False
            )
            if each.partition.keeps_damage or is_lacking:
                self._notice(
                    notice_codes.DAMAGED_FOLLOWER,
                    f"{place_of(each.directory)}: before it starts, move the directory"
                    f" {each.partition.directory} out of the log directory, and the broker copies"
                    f" what node {leader} has; or keep only its valid records with kdump recover"
                    " --policy salvage",
                )

    def _report_lacking(self, leader: int, replicas: Sequence[int]) -> None:
        """Report what a leader lacks in the middle of its log, and a follower has."""
        if leader not in self.by_node:
            return
        for node, each in self.by_node.items():
            ranges = lacked(self.by_node[leader], [each]) if node != leader else ()
            if ranges:
                self._notice(
                    notice_codes.DAMAGED_LEADER,
                    f"node {leader} leads, and lacks offsets {_offsets(ranges)}, which node {node}"
                    " has; export them first with kdump export, or let that node lead",
                    override=f"{self.path}.leader={node}"
                    if node in replicas and each.loaded is not None
                    else None,
                )

    def _report_empty_ahead(self, leader: int, replicas: Iterable[int]) -> None:
        """Report empty logs that end after the leader's: retention deleted their records."""
        if leader not in self.by_node and not self._has_all_disks(leader, None):
            return
        end = _log_of(self.by_node.get(leader)).log_end_offset
        for node in replicas:
            log = _log_of(self.by_node.get(node))
            if end < log.log_start_offset == log.log_end_offset:
                self._notice(
                    notice_codes.OFFSETS_AGAIN,
                    f"node {leader} leads, and gives out offsets from {end} on; the log of node"
                    f" {node} is empty and ends at {log.log_end_offset}",
                    override=f"{self.path}.leader={node}",
                )


def _led_later(replica: DiskReplica, other: DiskReplica) -> bool:
    """Whether a replica led in an epoch that another does not know, and has lost nothing since.

    A leader writes its epoch to ``leader-epoch-checkpoint`` before it has a record in it.
    """
    committed = replica.partition.high_watermark or 0
    return (
        replica.highest_epoch > other.highest_epoch
        and not replica.partition.problems
        and committed <= _log_of(replica).log_end_offset
    )


def without_natural_gaps(topic: TopicChoice, configs: Iterable[PlannedConfig]) -> TopicChoice:
    """The same topic, but offsets that the cleaner may have removed do not count as missing.

    Each broker cleans for itself, and a replica that was copied from a cleaned one has its gaps
    without a line in the cleaner's checkpoint: so one such line, of any partition, is enough.
    """
    every = [each for found in topic.all_directories.values() for each in found]
    is_cleaned = any(each.partition.is_cleaned for each in every)
    is_compacted = any(each.name == CLEANUP_POLICY and _COMPACT in each.value for each in configs)
    if not (is_cleaned or is_compacted):
        return topic
    return _with_each(topic, _without_gaps)


def with_remote_records(topic: TopicChoice, configs: Iterable[PlannedConfig]) -> TopicChoice:
    """The same topic, but if it has tiered storage, logs begin with the records that are remote.

    A leader finds them by its leader epochs. Those that it has no epoch of are lost: brokers delete
    them, because they are of no epoch of its log.
    """
    is_tiered = any(each.name == REMOTE_STORAGE_ENABLE and is_true(each.value) for each in configs)
    return _with_each(topic, _from_first_epoch) if is_tiered else topic


def _from_first_epoch(found: DiskReplica) -> DiskReplica:
    partition, loaded = found.partition, found.partition.loaded
    if loaded is None or partition.log_start_offset is None or not loaded.leader_epochs:
        return found
    first = loaded.leader_epochs[0].start_offset
    changed = replace(
        partition,
        log_start_offset=min(partition.log_start_offset, first),
        leader_epochs=partition.leader_epochs or loaded.leader_epochs,
        loaded=replace(loaded, log_start_offset=min(loaded.log_start_offset, first)),
    )
    return replace(found, partition=changed)


def _with_each(topic: TopicChoice, change: Callable[[DiskReplica], DiskReplica]) -> TopicChoice:
    return replace(
        topic,
        replicas={n: [*map(change, found)] for n, found in topic.replicas.items()},
        all_directories={n: [*map(change, found)] for n, found in topic.all_directories.items()},
    )


def _without_gaps(found: DiskReplica) -> DiskReplica:
    """The same replica, but only what damage took is missing."""
    changed = replace(found.partition, missing_offsets=found.partition.damaged_offsets)
    return replace(found, partition=changed)


_KEEP_FIRST: Final = "keep them first with kdump recover --policy salvage"
NO_RECORDS: Final = LoadedReplica(0, 0, 0, ())
"""The log of a replica that a starting broker does not load."""


def _log_of(leader: DiskReplica | None) -> LoadedReplica:
    return NO_RECORDS if leader is None or leader.loaded is None else leader.loaded


def _doubtful(replica: DiskReplica, held: LoadedReplica, leader: LoadedReplica) -> Iterator[range]:
    """Yield the offsets that its records may not have, if nobody has them.

    That is what a broker loads after the end, and a last batch whose base offset may be wrong. The
    records may be those of other offsets, which the leader perhaps has.
    """
    loaded = replica.partition.loaded
    if loaded is None or loaded.log_start_offset > held.log_end_offset:
        # A start keeps none of it. A leader without its leader epoch has none of its records.
        is_older = leader.latest_epoch < replica.highest_epoch
        end = held.log_end_offset if is_older else leader.log_end_offset
        for each in replica.partition.doubtful_offsets:
            start = max(each.start, end, held.log_start_offset)
            yield from filter(None, (range(start, each.stop),))
    elif held.log_end_offset > held.log_start_offset:
        start = max(held.log_end_offset, leader.log_end_offset)
        if start < loaded.log_end_offset:
            yield range(start, loaded.log_end_offset)


def lacked(replica: DiskReplica, others: Iterable[DiskReplica]) -> tuple[range, ...]:
    """The offsets that are missing in a replica's log, and that others hold; none of them twice.

    Others hold everything from their start to their end that is not known to be missing, and what a
    broker loads after that: those records may be in doubt.
    """
    log = replica.loaded
    if log is None:
        return ()
    found: list[range] = []
    for missing in replica.partition.missing_offsets or ():
        for each in others:
            held, loaded = each.held, each.partition.loaded
            if held is None:
                continue
            end = max(held.log_end_offset, 0 if loaded is None else loaded.log_end_offset)
            start = max(missing.start, log.log_start_offset, held.log_start_offset)
            stop = min(missing.stop, log.log_end_offset, end)
            for gap in each.partition.missing_offsets or ():
                if start < stop and gap.start < stop and start < gap.stop:
                    if start < gap.start:
                        found.append(range(start, gap.start))
                    start = gap.stop
            if start < stop:
                found.append(range(start, stop))
    return tuple(joined(found))


def _outside(ranges: Iterable[range], log: LoadedReplica) -> Iterator[range]:
    """The parts of some ranges that are before the start or after the end of a log."""
    for each in ranges:
        yield from filter(
            None,
            (
                range(each.start, min(each.stop, log.log_start_offset)),
                range(max(each.start, log.log_end_offset), each.stop),
            ),
        )


def _offsets(ranges: Iterable[range]) -> str:
    return " and ".join(f"{each.start} to {each.stop - 1}" for each in ranges)


def _loss(
    replica: DiskReplica,
    lost: Sequence[range],
    leader: int,
    winner: DiskReplica | None,
    replicas: Sequence[int],
) -> str:
    """What a replica loses, and why."""
    offsets = _offsets(lost)
    if replica.becomes_stray:
        return f"it has no topic id and becomes -stray, and offsets {offsets} are in no other log"
    if replica.partition.loaded is None:
        return f"a starting broker does not load it, and offsets {offsets} are in no other log"
    if replica is winner or replica.loaded is None:
        return f"a starting broker drops offsets {offsets}, which no replica has; {_KEEP_FIRST}"
    if winner is None:
        return (
            f"node {leader} leads without a disk that was collected; node {replica.node_id} may"
            f" lose offsets {offsets}"
        )
    loses = "loses" if replica.node_id in replicas else "becomes -stray with"
    epoch, end = winner.end
    return (
        f"node {leader} wins (epoch {epoch}, end {end}); node {replica.node_id} {loses} offsets"
        f" {offsets} (epoch {replica.end[0]})"
    )


def _usual_replicas(topic: TopicChoice) -> tuple[int, ...]:
    """The nodes that a missing partition gets: as many as the others have, of those they have."""
    nodes: Counter[int] = Counter()
    sizes: list[int] = []
    for number in {*topic.in_copy, *topic.replicas}:
        registered = topic.in_copy.get(number)
        replicas = (
            {each.node_id for each in topic.replicas[number]}
            if registered is None
            else set(registered.replicas)
        )
        nodes.update(replicas)
        sizes.append(len(replicas))
    if not sizes:
        return ()
    return tuple(sorted(nodes, key=lambda node: (-nodes[node], node))[: max(sizes)])


def _rotated(nodes: Sequence[int], number: int) -> tuple[int, ...]:
    """The nodes, beginning with another one for each partition, so that leaders are spread."""
    if not nodes:
        return ()
    begin = number % len(nodes)
    return (*nodes[begin:], *nodes[:begin])


def _best(
    holders: Sequence[int],
    by_node: Mapping[int, DiskReplica],
    registered: PartitionRegistration | None,
) -> int:
    """The most advanced replica once brokers have started.

    Of several that end alike, the one that costs the fewest records on the others; then one without
    damage; then one with the epochs of its records; then the one that the copy prefers.
    """
    best = max(by_node[node].end for node in holders)
    tied = [node for node in holders_in_order(holders, registered) if by_node[node].end == best]

    def cost(node: int) -> tuple[int, bool, bool]:
        leader = _log_of(by_node[node])
        held = [each.held for each in by_node.values()]
        lost = [lost_as_follower(each, leader) for each in held if each is not None]
        lost.append(lacked(by_node[node], by_node.values()))
        count = sum(len(part) for each in lost for part in each)
        return count, bool(by_node[node].partition.problems), by_node[node].has_problem

    return tied[0] if len(tied) == 1 else min(tied, key=cost)


def holders_in_order(
    holders: Sequence[int], registered: PartitionRegistration | None
) -> tuple[int, ...]:
    """Replicas in the order of preference: the leader, the ISR, eligible ones, then the rest."""
    if registered is None:
        return tuple(holders)
    order = (registered.leader, *registered.isr, *registered.elr, *registered.last_known_elr)
    return tuple(dict.fromkeys([*(node for node in order if node in holders), *holders]))


def _epoch_above_all(topic: TopicChoice, number: int) -> int:
    """A leader epoch above every one in copies, checkpoints, batch headers and claims."""
    seen = [-1]
    seen += (each.highest_epoch for each in topic.all_directories.get(number, ()))
    seen += (each.leader_epoch for each in topic.in_old_copies.get(number, ()))
    seen += (
        each.highest_leader_epoch
        for each in topic.claims.get(number, ())
        if each.highest_leader_epoch is not None
    )
    if number in topic.in_copy:
        seen.append(topic.in_copy[number].leader_epoch)
    epoch = max(seen) + 1
    if epoch > MOST_EPOCH:
        raise UsageProblem(
            f"{topic.name}-{number}: there is no leader epoch above {epoch - 1}; leave out the"
            " collection that has it, if it is damage"
        )
    return epoch


def _partition_epoch(topic: TopicChoice, number: int) -> int:
    seen = [each.partition_epoch for each in topic.in_old_copies.get(number, ())]
    if number in topic.in_copy:
        seen.append(topic.in_copy[number].partition_epoch)
    return min(max(seen, default=-1) + 1, MOST_EPOCH)
