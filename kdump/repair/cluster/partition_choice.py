"""Replicas, leader, epochs and directories of a topic's partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kdump.errors import UsageProblem
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.names import PartitionState
from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import DiskReplica, Evidence, place_of
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.overrides import Overrides
from kdump.repair.cluster.topic_choice import TopicChoice
from kdump.state.epochs.follower_truncation import LoadedReplica, truncation_as_follower
from kdump.state.metadata.cluster_plan import PlannedTopicPartition, Source, SourceKind
from kdump.state.metadata.metadata_entities import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    PartitionRegistration,
)
from kdump.words import counted

MOST_EPOCH: Final = 2**31 - 1
_RECOVERED: Final = "RECOVERED"


@dataclass(slots=True)
class PartitionPlanner:
    """Plans the partitions of a topic.

    Attributes:
        copy_source: the source of what comes from the chosen copy.
    """

    evidence: Evidence
    copy_source: Source
    overrides: Overrides
    notices: Notices

    def plan(self, topic: TopicChoice) -> tuple[PlannedTopicPartition, ...]:
        """The partitions of a topic, by number.

        Raises:
            UsageProblem: ``--set`` names a leader that is no replica.
        """
        self._require_numbers(topic)
        self._report_lost_strays(topic)
        spare = _usual_replicas(topic)
        return tuple(self._partition(topic, number, spare) for number in range(topic.count))

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
            elif any(each.partition.state is PartitionState.FUTURE for each in directories):
                self.notices.add(
                    notice_codes.FUTURE_ONLY,
                    f"{place_of(directories[0].directory)}: {directories[0].partition.directory}",
                    topic.name,
                    number,
                )

    def _partition(
        self, topic: TopicChoice, number: int, spare: tuple[int, ...]
    ) -> PlannedTopicPartition:
        by_node = self._one_of_each_node(topic, number)
        registered = topic.in_copy.get(number)
        replicas, source = self._replicas(topic, number, by_node, registered, spare)
        leader, isr, leader_source = self._leader(topic, number, replicas, by_node, registered)
        directories, directory_source = self._directories(replicas, by_node, registered)
        said = self.overrides.topic(topic.name).leader_epochs.get(number)
        epoch = _epoch_above_all(topic, number)
        is_as_registered = registered is not None and replicas == registered.replicas
        if leader >= 0:
            self._report_losers(topic, number, leader, replicas, by_node)
        return PlannedTopicPartition(
            partition=number,
            replicas=replicas,
            directories=directories,
            isr=isr,
            elr=(),
            last_known_elr=(),
            removing_replicas=registered.removing_replicas
            if registered is not None and is_as_registered
            else (),
            adding_replicas=registered.adding_replicas
            if registered is not None and is_as_registered
            else (),
            leader=leader,
            leader_recovery_state=_RECOVERED,
            leader_epoch=epoch if said is None else said,
            partition_epoch=_partition_epoch(topic, number),
            sources={
                "partition": self._existence(topic, number, by_node),
                "replicas": source,
                "directories": directory_source,
                "leader": leader_source,
                "leader_epoch": Source(SourceKind.RULE, "above all on the disks")
                if said is None
                else Source(SourceKind.SET, "leader epoch"),
            },
        )

    def _existence(
        self, topic: TopicChoice, number: int, by_node: Mapping[int, DiskReplica]
    ) -> Source:
        if number in topic.in_copy:
            return self.copy_source
        if by_node:
            return by_node[min(by_node)].source
        if number in topic.in_old_copies:
            return Source(SourceKind.OLD_COPY, "another copy of the metadata")
        if number in topic.claims:
            return topic.counted_by
        return Source(SourceKind.GUESS, "a missing number")

    # --- replicas

    def _one_of_each_node(self, topic: TopicChoice, number: int) -> dict[int, DiskReplica]:
        """The directory that counts of each node: where there are several, the most advanced."""
        found: dict[int, DiskReplica] = {}
        for each in topic.replicas.get(number, ()):
            if each.node_id not in found:
                found[each.node_id] = each
                continue
            self.notices.add(
                notice_codes.DUPLICATE_REPLICA,
                f"{found[each.node_id].directory.path} counts, {each.directory.path} does not; the"
                " broker refuses to start with both",
                topic.name,
                number,
            )
        return found

    def _replicas(
        self,
        topic: TopicChoice,
        number: int,
        by_node: Mapping[int, DiskReplica],
        registered: PartitionRegistration | None,
        spare: tuple[int, ...],
    ) -> tuple[tuple[int, ...], Source]:
        said = self.overrides.topic(topic.name).replicas.get(number)
        if said is not None:
            self._report_left_out(topic, number, [by_node[n] for n in by_node if n not in said])
            return said, Source(SourceKind.SET, "replicas")
        if registered is not None:
            extra = self._extra(topic, number, by_node, registered)
            source = by_node[extra[0]].source if extra else self.copy_source
            return (*registered.replicas, *extra), source
        if by_node:
            nodes = _rotated(sorted(by_node), number)
            return nodes, by_node[min(by_node)].source
        if topic.in_old_copies.get(number):
            source = Source(SourceKind.OLD_COPY, "another copy of the metadata")
            return topic.in_old_copies[number][0].replicas, source
        return _rotated(sorted(spare), number), Source(
            SourceKind.GUESS, "like the topic's other partitions"
        )

    def _report_left_out(
        self, topic: TopicChoice, number: int, replicas: Iterable[DiskReplica]
    ) -> None:
        for each in replicas:
            self.notices.add(
                notice_codes.EXTRA_REPLICA,
                f"{place_of(each.directory)}: its directory becomes -stray: it is no replica by"
                " --set",
                topic.name,
                number,
            )

    def _extra(
        self,
        topic: TopicChoice,
        number: int,
        by_node: Mapping[int, DiskReplica],
        registered: PartitionRegistration,
    ) -> tuple[int, ...]:
        """Nodes that have the partition, and that the copy does not name as replicas."""
        others = [node for node in sorted(by_node) if node not in registered.replicas]
        best = max(
            (by_node[node].end for node in registered.replicas if node in by_node), default=None
        )
        extra = [node for node in others if best is None or by_node[node].end > best]
        for node in others:
            what = (
                "it is added to the replicas: it is more advanced than all of them"
                if node in extra
                else "its directory becomes -stray: a replica has all of it"
            )
            self.notices.add(
                notice_codes.EXTRA_REPLICA,
                f"{place_of(by_node[node].directory)}: {what}",
                topic.name,
                number,
                override=f"topic.{topic.name}.partition.{number}.replicas="
                + ",".join(map(str, (*registered.replicas, *others))),
            )
        return tuple(extra)

    def _directories(
        self,
        replicas: Iterable[int],
        by_node: Mapping[int, DiskReplica],
        registered: PartitionRegistration | None,
    ) -> tuple[tuple[str, ...], Source]:
        known = (
            {}
            if registered is None
            else dict(zip(registered.replicas, registered.directories, strict=True))
        )
        found = []
        for node in replicas:
            replica = by_node.get(node)
            if replica is not None:
                found.append(replica.directory.directory_id or MIGRATING_DIRECTORY)
            elif node in self.evidence.nodes:
                # The controller assigns one of the broker's directories.
                found.append(MIGRATING_DIRECTORY)
            else:
                found.append(known.get(node, MIGRATING_DIRECTORY))
        source = by_node[min(by_node)].source if by_node else self.copy_source
        return tuple(found), source

    # --- leader

    def _leader(
        self,
        topic: TopicChoice,
        number: int,
        replicas: tuple[int, ...],
        by_node: Mapping[int, DiskReplica],
        registered: PartitionRegistration | None,
    ) -> tuple[int, tuple[int, ...], Source]:
        """The leader, the ISR and their source."""
        holders = [node for node in replicas if node in by_node]
        said = self.overrides.topic(topic.name).leaders.get(number)
        if said is not None:
            if said not in replicas:
                raise UsageProblem(
                    f"--set topic.{topic.name}.partition.{number}.leader={said}: its replicas are"
                    f" {', '.join(map(str, replicas))}"
                )
            return said, (said,), Source(SourceKind.SET, "leader")
        if holders:
            leader = _best(holders, by_node, registered)
            self._report_missing_isr(topic, number, leader, registered)
            self._report_claims_ahead(topic, number, by_node[leader])
            return leader, (leader,), by_node[leader].source
        return self._without_data(topic, number, replicas, registered)

    def _without_data(
        self,
        topic: TopicChoice,
        number: int,
        replicas: tuple[int, ...],
        registered: PartitionRegistration | None,
    ) -> tuple[int, tuple[int, ...], Source]:
        """A partition that no collected disk has waits for a node, or for an unclean election."""
        waiting = tuple(node for node in replicas if node not in self.evidence.nodes)
        if registered is not None:
            in_sync = {*registered.isr, *registered.elr, *registered.last_known_elr}
            waiting = tuple(node for node in waiting if node in in_sync) or waiting
        is_known = registered is not None or number in topic.in_old_copies
        choose = f"topic.{topic.name}.partition.{number}.leader=NODE"
        if waiting and is_known:
            nodes = ", ".join(map(str, waiting))
            what = f"it is offline until node {nodes} starts, whose disks were not collected"
        else:
            waiting = ()
            what = "it has no leader; an unclean election, or --set, starts it empty"
        code = notice_codes.NO_DATA if is_known else notice_codes.HOLE
        self.notices.add(code, what, topic.name, number, override=choose)
        return NO_LEADER, waiting[:1], Source(SourceKind.GUESS, "no collected disk has it")

    def _report_missing_isr(
        self, topic: TopicChoice, number: int, leader: int, registered: PartitionRegistration | None
    ) -> None:
        if registered is None:
            return
        in_sync = {*registered.isr, *registered.elr}
        absent = sorted(in_sync - self.evidence.nodes)
        if absent and leader not in in_sync:
            self.notices.add(
                notice_codes.ISR_NOT_COLLECTED,
                f"in sync: {', '.join(map(str, absent))}; node {leader} leads and may lack the last"
                " records",
                topic.name,
                number,
            )

    def _report_claims_ahead(self, topic: TopicChoice, number: int, leader: DiskReplica) -> None:
        claims = topic.claims.get(number, ())
        offset = max((each.highest_offset or 0 for each in claims), default=0)
        end = leader.partition.log_end_offset
        if end is not None and offset > end:
            self.notices.add(
                notice_codes.BEHIND_COMMITTED,
                f"its log ends at {end}, and an internal topic names offset {offset}",
                topic.name,
                number,
            )

    def _report_losers(
        self,
        topic: TopicChoice,
        number: int,
        leader: int,
        replicas: Sequence[int],
        by_node: Mapping[int, DiskReplica],
    ) -> None:
        """Report what replicas lose when they follow the leader."""
        winner = None if leader not in by_node else loaded(by_node[leader])
        for node in replicas:
            if node == leader or node not in by_node:
                continue
            loser = loaded(by_node[node])
            if winner is None or loser is None:
                continue
            truncation = truncation_as_follower(loser, winner)
            if truncation is None or truncation.end_offset >= loser.log_end_offset:
                continue
            begin = max(truncation.end_offset, loser.log_start_offset)
            lost = "all of its log" if truncation.starts_over else f"offsets {begin} to"
            self.notices.add(
                notice_codes.PARTED,
                f"node {leader} wins (epoch {winner.latest_epoch}, end {winner.log_end_offset});"
                f" node {node} loses {lost} {loser.log_end_offset - 1}"
                f" (epoch {loser.latest_epoch})"
                if not truncation.starts_over
                else f"node {leader} wins; node {node} loses {lost}, which ends before offset"
                f" {winner.log_start_offset}",
                topic.name,
                number,
                override=f"topic.{topic.name}.partition.{number}.leader={node}",
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
    """The most advanced replica; of several that end alike, the one that the copy prefers."""
    preferred: tuple[int, ...] = holders_in_order(holders, registered)
    best = max(by_node[node].end for node in holders)
    return next(node for node in preferred if by_node[node].end == best)


def holders_in_order(
    holders: Sequence[int], registered: PartitionRegistration | None
) -> tuple[int, ...]:
    """Replicas in the order of preference: the leader, the ISR, eligible ones, then the rest."""
    if registered is None:
        return tuple(holders)
    order = (registered.leader, *registered.isr, *registered.elr, *registered.last_known_elr)
    return tuple(dict.fromkeys([*(node for node in order if node in holders), *holders]))


def loaded(replica: DiskReplica) -> LoadedReplica | None:
    """A replica as a starting broker has it; None if its log cannot be read."""
    partition = replica.partition
    if partition.log_end_offset is None or partition.log_start_offset is None:
        return None
    epochs = list(partition.leader_epochs)
    start = partition.last_epoch_start_offset
    if partition.last_epoch is not None and start is not None:
        epochs = [each for each in epochs if each.epoch < partition.last_epoch]
        epochs.append(EpochEntry(partition.last_epoch, start))
    return LoadedReplica(
        partition.log_start_offset, partition.log_end_offset, partition.high_watermark, epochs
    )


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
