"""The rows and the summary of ``kdump diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, field

from kdump.cli.output.rendering import Row
from kdump.dump.segment_rows import text_field
from kdump.formats.cursor import Cursor
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import RecordHeader, decode_record_header
from kdump.jobs.diff.compared_rows import COMPARED_PARTITION
from kdump.jobs.diff.comparison import OnlyOnOne
from kdump.jobs.diff.cut_batch import CutBatch
from kdump.jobs.diff.diff import DiffSplit
from kdump.jobs.diff.record_rows import RecordRows
from kdump.jobs.diff.replica_log import OffsetRanges
from kdump.jobs.diff.results import (
    Compared,
    PairResult,
    PartitionDiff,
    ReplicaResult,
    TopicDiff,
    UnrelatedReplica,
)
from kdump.log.log_search import ReplicaEnd
from kdump.rows.row_type import Field
from kdump.state.epochs.follower_truncation import Truncation
from kdump.words import counted

SAME: Final = "same"
PREFIX: Final = "prefix"
DAMAGED: Final = "damaged"
DIVERGED: Final = "diverged"
UNRELATED: Final = "unrelated"
MISSING: Final = "missing"
VERDICTS: Final = (SAME, PREFIX, DAMAGED, DIVERGED, UNRELATED, MISSING)
WITHOUT_NUMBERS: Final = (UNRELATED, MISSING)
"""Verdicts on replicas that are not compared."""

_CHOICES: Final = ("suggested", "elected")
MOST_LINES: Final = 10
"""How many partitions the summary names."""


class DiffReport(Struct):
    """Turns results into rows, and sums them up.

    Attributes:
        side_names: by number.
        node_ids: of the sides; None if unknown.
        partitions: how many partitions were compared.
        verdicts: how often each was given.
        unassigned: how often a side has no replica because it should not have one.
        corrupt: how many partitions have different records in the same leader epoch.
    """

    side_names: Sequence[str]
    node_ids: Sequence[int | None]
    partitions: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    unassigned: int = 0
    corrupt: int = 0
    _choices: list[str] = field(default_factory=list)

    @property
    def is_different(self) -> bool:
        """Whether something differs."""
        return self.verdicts.total() > self.verdicts[SAME] + self.unassigned

    def missing_row(
        self, key: TopicPartition | None, there: int, absent: int, is_assigned: bool | None
    ) -> Row:
        """Make the row of a partition that one side has and another has not.

        Args:
            there: the number of a side that has it.
            absent: of the side that has not.
            is_assigned: whether it should have it; None if unknown.
        """
        self.verdicts[MISSING] += 1
        self.unassigned += is_assigned is False
        fields: dict[str, object] = {field.name: None for field in COMPARED_PARTITION.fields}
        left, right = sorted((there, absent))
        names = {"left": left, "right": right}
        return {
            "type": "partition",
            **fields,
            **_identity(key),
            "verdict": MISSING,
            **{side: self.side_names[number] for side, number in names.items()},
            **{f"{side}_node_id": self.node_ids[number] for side, number in names.items()},
            "missing_on": "left" if left == absent else "right",
            "is_assigned": is_assigned,
        }

    def rows(self, found: Compared) -> Iterator[Row]:
        """Yield a row for every pair of replicas."""
        if not isinstance(found, PartitionDiff):
            return
        self.partitions += 1
        self.corrupt += any(pair.parting.corrupt_records for pair in found.pairs)
        for topic in found.topics:
            yield from self._topic_rows(found.key, topic)
        for left, right in found.unrelated:
            self.verdicts[UNRELATED] += 1
            yield self._unrelated_row(found.key, left, right)

    def _topic_rows(self, key: TopicPartition | None, found: TopicDiff) -> Iterator[Row]:
        leaders = self._leaders(key, found)
        for pair in found.pairs:
            row = self._row(key, found, pair)
            self.verdicts[row["verdict"]] += 1
            yield row | leaders

    def _leaders(self, key: TopicPartition | None, found: TopicDiff) -> dict[str, Any]:
        """What is said about leaders; nothing if a broker is using one of the logs."""
        if found.judged_end_offset is not None:
            fields = [f"{name}_leader" for name in _CHOICES]
            return dict.fromkeys([*fields, *(f"{each}_loses" for each in fields)])
        best, elected = _best(found.replicas), _elected(found.replicas)
        if found.replicas[elected].lost_if_leading:
            self._choices.append(self._choice(key, found, best, elected))
        row: dict[str, Any] = {}
        for name, number in zip(_CHOICES, (best, elected), strict=True):
            row[f"{name}_leader"] = self.side_names[found.replicas[number].side]
            row[f"{name}_leader_loses"] = found.replicas[number].lost_if_leading
        return row

    def _unrelated_row(
        self, key: TopicPartition | None, left: UnrelatedReplica, right: UnrelatedReplica
    ) -> Row:
        row: dict[str, Any] = {field.name: None for field in COMPARED_PARTITION.fields}
        row |= {"type": "partition", **_identity(key), "verdict": UNRELATED}
        for side, replica in (("left", left), ("right", right)):
            row |= {
                side: self.side_names[replica.side],
                f"{side}_node_id": self.node_ids[replica.side],
                f"{side}_directory": str(replica.path),
                f"{side}_topic_id": replica.topic_id,
            }
        return row

    def record_rows(
        self, split: DiffSplit, holder: int, other: int, records: RecordRows
    ) -> Iterator[Row]:
        """Yield a row for each of ``records``, which one replica has and another has not."""
        columns = [
            *(
                column.tolist()
                for column in (records.offset, records.timestamp, records.is_control)
            ),
            *(column.to_pylist() for column in (records.key, records.value, records.headers)),
        ]
        names = {
            "side": "left" if holder < other else "right",
            "only_on": self.side_names[split.replicas[holder].side],
            "not_on": self.side_names[split.replicas[other].side],
            "directory": str(split.replicas[holder].path),
        }
        for offset, timestamp, is_control, key, value, headers in zip(*columns, strict=True):
            yield {
                "type": "record",
                **_identity(split.key),
                **names,
                "offset": offset,
                "timestamp_ms": timestamp,
                "is_control": is_control,
                **text_field("key", key),
                **text_field("value", value),
                "headers": [
                    {**text_field("key", header.key), **text_field("value", header.value)}
                    for header in _headers(headers)
                ],
            }

    def _row(
        self, key: TopicPartition | None, found: TopicDiff, pair: PairResult
    ) -> dict[str, Any]:
        left, right = found.replicas[pair.left], found.replicas[pair.right]
        verdict, common_end = _verdict(pair, left, right, found.judged_end_offset)
        return {
            "type": "partition",
            **_identity(key),
            "verdict": verdict,
            "damaged_on": _damaged_on(left, right),
            "missing_on": None,
            "is_assigned": None,
            "common_end_offset": common_end,
            "judged_end_offset": found.judged_end_offset,
            "common_epoch": None if common_end is None else pair.common_epoch,
            **self._side("left", left, pair.left_truncation, pair.left_only, pair.right_only),
            **self._side("right", right, pair.right_truncation, pair.right_only, pair.left_only),
            "left_cut_batch": _cut_batch(pair.left_cut),
            "right_cut_batch": _cut_batch(pair.right_cut),
            "same_records": pair.parting.same_records,
            "corrupt_records": pair.parting.corrupt_records,
            "corrupt_ranges": _ranges(pair.parting.corrupt),
        }

    def _side(
        self,
        side: str,
        replica: ReplicaResult,
        truncation: Truncation | None,
        only: OnlyOnOne,
        others_only: OnlyOnOne,
    ) -> Row:
        return {
            side: self.side_names[replica.side],
            f"{side}_node_id": self.node_ids[replica.side],
            f"{side}_directory": str(replica.path),
            f"{side}_topic_id": replica.topic_id,
            f"{side}_start_offset": replica.start_offset,
            f"{side}_end_offset": replica.end_offset,
            f"{side}_loaded_end_offset": (
                None if replica.loaded is None else replica.loaded.log_end_offset
            ),
            f"{side}_last_epoch": replica.last.leader_epoch,
            f"{side}_truncates_to": None if truncation is None else truncation.end_offset,
            f"{side}_starts_over": None if truncation is None else truncation.starts_over,
            f"{side}_lost_records": None if truncation is None else only.lost_records,
            f"{side}_only_records": only.records,
            f"{side}_only_control_records": only.control_records,
            f"{side}_missing_ranges": _ranges(others_only.missing),
            f"{side}_compacted_records": others_only.compacted_records,
            f"{side}_unreadable_records": others_only.unreadable_records,
            f"{side}_unreadable_ranges": [each._asdict() for each in replica.unreadable],
            f"{side}_recoverable_ranges": [each._asdict() for each in replica.recoverable],
        }

    def _choice(self, key: TopicPartition | None, found: TopicDiff, best: int, elected: int) -> str:
        def loses(number: int) -> str:
            replica = found.replicas[number]
            return f"{self.side_names[replica.side]} ({_records(replica.lost_if_leading)} lost)"

        name = key or found.replicas[0].path.name
        if found.replicas[best].lost_if_leading == found.replicas[elected].lost_if_leading:
            return f"{name}: {_records(found.replicas[best].lost_if_leading)} lost, whoever leads"
        return f"{name}: least is lost if {loses(best)} leads; Kafka would elect {loses(elected)}"

    def summary(self) -> Row:
        """Make the summary's object."""
        return {
            "type": "summary",
            "partitions": self.partitions,
            **{verdict: self.verdicts[verdict] for verdict in VERDICTS},
            "unassigned": self.unassigned,
            "corrupt_partitions": self.corrupt,
        }

    def lines(self) -> Iterator[str]:
        """Yield the summary for people."""
        verdicts = ", ".join(
            f"{self.verdicts[verdict]} {verdict}" for verdict in VERDICTS if self.verdicts[verdict]
        )
        compared = f"{counted(self.partitions, 'partition')} compared"
        if len(self.side_names) > 2:
            compared += ", every pair of replicas"
        yield f"{compared}: {verdicts}" if verdicts else compared
        if len(self.side_names) == 2:
            left, right = self.side_names
            yield f"left is {left}, right is {right}"
        if self.unassigned:
            yield (
                f"{self.unassigned} missing as they should be: the cluster's metadata names no"
                " replica there"
            )
        if self.corrupt:
            yield (
                f"{counted(self.corrupt, 'partition')} with other records in the same leader epoch:"
                " one replica is corrupt"
            )
        yield from self._choices[:MOST_LINES]
        if len(self._choices) > MOST_LINES:
            yield f"and {counted(len(self._choices) - MOST_LINES, 'more partition')}"


def notes(found: PartitionDiff) -> Iterator[str]:
    """Yield what makes the prediction of truncations uncertain, one line each."""
    for replica in found.replicas:
        if replica.epochs_differ_at is not None:
            yield (
                f"{replica.path}: leader-epoch-checkpoint contradicts the batches from offset"
                f" {replica.epochs_differ_at} on: truncations are predicted by the checkpoint, as a"
                " broker uses it; see kdump verify"
            )
    yield from sorted({cut for pair in found.pairs for cut in _cuts(pair)})
    for topic in found.topics:
        topic_ids = {each.topic_id for each in topic.replicas if each.topic_id is not None}
        if len(topic_ids) > 1:
            paths = ", ".join(str(each.path) for each in topic.replicas)
            yield (
                f"{paths}: these are replicas of different topics (topic IDs"
                f" {', '.join(sorted(topic_ids))}): no broker would truncate one to the other"
            )
    for left, right in found.unrelated:
        yield (
            f"{left.path}, {right.path}: not compared: their topics have one name and different IDs"
            f" ({left.topic_id}, {right.topic_id}), so one was deleted"
        )


def dropped_at_start(replica: ReplicaResult) -> str | None:
    """Say which records a starting broker drops from a replica; None if it drops none."""
    if replica.loaded is None or not replica.recoverable:
        return None
    offsets = " and ".join(
        f"{start} to {end - 1}" for start, end in replica.recoverable[:MOST_LINES]
    )
    return (
        f"a starting broker would drop valid batches of offsets {offsets}, and its log would end at"
        f" {replica.loaded.log_end_offset}; keep them first with kdump recover --policy salvage"
    )


def _cuts(pair: PairResult) -> Iterator[str]:
    """Yield what truncations within a batch delete."""
    for truncation, cut in (
        (pair.left_truncation, pair.left_cut),
        (pair.right_truncation, pair.right_cut),
    ):
        if truncation is not None and cut is not None:
            yield (
                f"{cut.path}: byte {cut.position}: offset {truncation.end_offset}, to which a"
                " follower truncates it, is inside the batch that begins there: the whole batch is"
                f" deleted, from offset {cut.base_offset} on"
            )


def columns_for_people(side_names: Sequence[str], rows: Iterable[Row]) -> list[Field]:
    """Return the columns of partitions; with two sides, every row has the same two."""
    left_out = set() if len(side_names) > 2 else {"left", "right"}
    if not any(row.get("damaged_on") for row in rows):
        left_out.add("damaged_on")
    return [each for each in COMPARED_PARTITION.fields if each.name not in left_out]


def deserves_attention(row: Row) -> bool:
    """Whether people see the row of a partition: not if it is the same, or need not be there."""
    return row["verdict"] != SAME and row["is_assigned"] is not False


def _headers(data: bytes) -> Iterator[RecordHeader]:
    cursor = Cursor(data)
    while cursor.remaining:
        yield decode_record_header(cursor)


def _identity(key: TopicPartition | None) -> Row:
    topic, number = key or (None, None)
    return {"topic": topic, "partition": number}


def _verdict(
    pair: PairResult, left: ReplicaResult, right: ReplicaResult, judged_end_offset: int | None
) -> tuple[str, int | None]:
    """The verdict on two replicas, and the end of what they have in common, if that is known."""
    if pair.parting.offset is not None:
        return DIVERGED, pair.parting.offset
    ends = [left.end_offset, right.end_offset]
    if judged_end_offset is not None:
        ends = [min(each, judged_end_offset) for each in ends]
    end = min(ends)
    is_apart = end < max(left.start_offset, right.start_offset)
    verdict = SAME if end == max(ends) else PREFIX
    if left.is_damaged or right.is_damaged:
        verdict = DAMAGED
    return verdict, None if is_apart else end


def _damaged_on(left: ReplicaResult, right: ReplicaResult) -> str | None:
    if left.is_damaged and right.is_damaged:
        return "both"
    return "left" if left.is_damaged else "right" if right.is_damaged else None


def _best(replicas: Sequence[ReplicaResult]) -> int:
    """The replica that loses least as the leader; among equals the one that would be elected."""
    return min(
        range(len(replicas)),
        key=lambda number: (
            replicas[number].lost_if_leading,
            -_standing(replicas[number]).leader_epoch,
            -_standing(replicas[number]).offset,
        ),
    )


def _elected(replicas: Sequence[ReplicaResult]) -> int:
    return max(range(len(replicas)), key=lambda number: _standing(replicas[number]))


def _standing(replica: ReplicaResult) -> ReplicaEnd:
    """What decides an election: the end of the log as a broker loads it, if one does."""
    if replica.loaded is None:
        return ReplicaEnd(-2, -1)
    return ReplicaEnd(replica.loaded.latest_epoch, replica.loaded.log_end_offset)


def _ranges(ranges: OffsetRanges) -> list[dict[str, int]]:
    return [each._asdict() for each in ranges.ranges]


def _cut_batch(cut: CutBatch | None) -> dict[str, Any] | None:
    if cut is None:
        return None
    return {"path": cut.path, "position": cut.position, "base_offset": cut.base_offset}


def _records(count: int) -> str:
    return counted(count, "record")
