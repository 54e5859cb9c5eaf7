"""What ``kdump quorum show`` prints: controllers' disks by rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kdump.cli.output.metadata_output import committed_line
from kdump.cli.output.rendering import Row
from kdump.jobs.metadata.planned_rows import CONTROLLER_CHANGES, VOTERS
from kdump.rows.common_rows import INTERRUPTED
from kdump.rows.row_type import (
    BYTES,
    FLAG,
    INTEGER,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    one_of,
)
from kdump.storage.place_names import kdump_command
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.jobs.metadata.metadata_copies import CopyComparison, MetadataCopy
    from kdump.jobs.quorum.quorum_ranking import QuorumRanking

COPY: Final = RowType(
    "copy",
    "A copy of the metadata, of 'quorum show'.",
    (
        Field("rank", INTEGER.limited(minimum=1), "1 for the most advanced copy.", "Rank"),
        Field("log_dir", TEXT, "", "Directory"),
        Field("node_id", INTEGER.or_null, "Null without a valid meta.properties.", "Node"),
        Field("epoch", INTEGER, "Of the last record.", "Epoch"),
        Field("end_offset", INTEGER, "", "End"),
        Field(
            "verdict",
            one_of("best", "same", "prefix", "diverged"),
            "How the copy relates to the best one.",
            "Compared",
        ),
        Field(
            "snapshot_end_offset",
            INTEGER.or_null_as("none"),
            "Of the newest snapshot; null if there is none.",
            "Snapshot",
            dropped=4,
        ),
        Field("snapshot_epoch", INTEGER.or_null, ""),
        Field("quorum_epoch", INTEGER.or_null, "Epoch in quorum-state.", "Quorum epoch", dropped=3),
        Field(
            "quorum_leader_id", INTEGER.or_null, "Leader in quorum-state; null if it names none."
        ),
        Field("quorum_voted_id", INTEGER.or_null, "Node that this one voted for."),
        Field("directory_id", TEXT.or_null, "", "Directory id", dropped=2),
        Field("cluster_id", TEXT.or_null, "", "Cluster", dropped=1),
        Field(
            "common_end_offset", INTEGER.or_null, "Up to where both agree; null for the best one."
        ),
        Field("common_epoch", INTEGER.or_null, ""),
        Field(
            "differing_offset",
            INTEGER.or_null,
            "A batch with other content in the same epoch, which is damage.",
        ),
        Field("path", TEXT, "The directory __cluster_metadata-0."),
    ),
    title="Copies of the metadata, the most advanced one first",
)

VOTER: Final = RowType(
    "voter",
    "A voter in the best copy, of 'quorum show'.",
    (
        Field("node_id", INTEGER, "", "Voter"),
        Field(
            "directory_id", TEXT.or_none, "Null with kraft.version 0.", "Directory id", dropped=1
        ),
        Field(
            "endpoints",
            replace(list_of(TEXT), unknown="-"),
            "NAME://HOST:PORT of each listener.",
            "Listeners",
        ),
        Field(
            "log_dir",
            TEXT.or_null_as("not shown"),
            "Its disk; null if it was not shown.",
            "Directory",
        ),
    ),
    title="Voters",
)

SUMMARY: Final = RowType(
    "summary",
    "The last object of 'quorum show'.",
    (
        Field("log_dir", TEXT, "The disk with the most."),
        Field("node_id", INTEGER.or_null),
        Field("epoch", INTEGER),
        Field("end_offset", INTEGER),
        Field(
            "committed_end_offset",
            INTEGER.or_null,
            "Up to where records are known to be committed.",
        ),
        Field("uncommitted_records", INTEGER, "Records after it."),
        Field("kraft_version", INTEGER),
        Field("voters", INTEGER),
        Field("shown_voters", INTEGER),
        Field("has_majority", FLAG, "Whether the voters that were shown can elect a leader."),
    ),
)

RESET: Final = RowType(
    "reset",
    "What 'quorum reset' does.",
    (
        Field("log_dir", TEXT),
        Field("node_id", INTEGER),
        Field("cluster_id", TEXT.or_null),
        Field("snapshot", TEXT, "Name of the file."),
        Field("end_offset", INTEGER, "The first offset after the snapshot."),
        Field("epoch", INTEGER, "Epoch of the snapshot."),
        Field("records", INTEGER, "Without control records."),
        Field("snapshot_bytes", BYTES),
        Field("lost", list_of(TEXT), "What the metadata.version cannot hold."),
        Field(
            "voters",
            VOTERS,
            "The new voters.",
        ),
        Field("kraft_version", INTEGER, "With 0, the configuration has the voters."),
        Field("topics", INTEGER),
        Field("partitions", INTEGER),
        Field("old_end_offset", INTEGER, "The end of the old log."),
        Field("old_epoch", INTEGER),
        Field("committed_end_offset", INTEGER.or_null),
        Field(
            "later_epoch",
            INTEGER.or_null,
            "The epoch of quorum-state, if the log ends in an older one: records of it are"
            " missing. null otherwise.",
        ),
        Field(
            "open_transaction_offset",
            INTEGER.or_null,
            "Where a metadata transaction began that is left out.",
        ),
        Field(
            "dropped_controllers",
            list_of(INTEGER),
            "Registered controllers that are no voters now.",
        ),
        *CONTROLLER_CHANGES,
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "quorum",
        (
            INTERRUPTED,
            COPY,
            VOTER,
            SUMMARY,
            RESET,
        ),
        (
            "quorum show",
            "quorum reset",
        ),
    ),
)


def copy_row(rank: int, copy: MetadataCopy, comparison: CopyComparison | None) -> Row:
    """Return the row of a copy; the best one is compared with nothing."""
    state = copy.quorum_state
    newest = max(copy.outline.snapshots, default=None)
    return {
        "type": "copy",
        "rank": rank,
        "log_dir": str(copy.log_dir),
        "path": str(copy.partition.path),
        "node_id": copy.node_id,
        "directory_id": copy.directory_id,
        "cluster_id": copy.cluster_id,
        "epoch": copy.end.epoch,
        "end_offset": copy.end.offset,
        "snapshot_end_offset": None if newest is None else newest.offset,
        "snapshot_epoch": None if newest is None else newest.epoch,
        "quorum_epoch": None if state is None else state.leader_epoch,
        "quorum_leader_id": _node(None if state is None else state.leader_id),
        "quorum_voted_id": _node(None if state is None else state.voted_id),
        "verdict": "best" if comparison is None else comparison.verdict.value,
        "common_end_offset": None if comparison is None else comparison.common_end_offset,
        "common_epoch": None if comparison is None else comparison.common_epoch,
        "differing_offset": None if comparison is None else comparison.differing_offset,
    }


def _node(node_id: int | None) -> int | None:
    return None if node_id is None or node_id < 0 else node_id


def ranking_rows(ranking: QuorumRanking) -> Iterator[Row]:
    """Yield the copies by rank, then the voters."""
    yield copy_row(1, ranking.best, None)
    for rank, other in enumerate(ranking.others, 2):
        yield copy_row(rank, other.copy, other.comparison)
    for each in ranking.voters:
        yield {
            "type": "voter",
            "node_id": each.voter.node_id,
            "directory_id": each.voter.directory_id,
            "endpoints": [str(listener) for listener in each.voter.listeners],
            "log_dir": None if each.copy is None else str(each.copy.log_dir),
        }


def ranking_summary(ranking: QuorumRanking) -> dict[str, Any]:
    """Return the row of the summary."""
    best = ranking.best
    return {
        "type": "summary",
        "log_dir": str(best.log_dir),
        "node_id": best.node_id,
        "epoch": best.end.epoch,
        "end_offset": best.end.offset,
        "committed_end_offset": ranking.committed_end,
        "uncommitted_records": ranking.uncommitted_records,
        "kraft_version": ranking.kraft_version,
        "voters": len(ranking.voters),
        "shown_voters": ranking.shown_voters,
        "has_majority": ranking.has_majority,
    }


def ranking_lines(ranking: QuorumRanking) -> Iterator[str]:
    """Yield the summary for people."""
    best = ranking.best
    if best.cluster_id is not None:
        yield f"cluster {best.cluster_id}"
    yield (
        f"{best.log_dir} has the most: before offset {best.end.offset}, epoch {best.end.epoch};"
        f" {committed_line(ranking.committed_end, best.end.offset)}"
    )
    if ranking.uncommitted_records:
        yield (
            "which of them the cluster had committed is not known: no disk has the high watermark"
        )
    if not ranking.voters:
        yield "the metadata does not name the voters"
        return
    missing = [each.voter.node_id for each in ranking.voters if each.copy is None]
    disks = f"{ranking.shown_voters} of {counted(len(ranking.voters), 'voter')} shown"
    if ranking.has_majority:
        yield f"{disks}: enough to elect a leader without a reset, if these disks are sound"
        return
    nodes = ", ".join(map(str, missing))
    if not ranking.is_best_of_voter:
        collect = kdump_command("metadata collect --out FILE", [best.log_dir.typed])
        yield (
            f"{disks}, a majority is missing (nodes {nodes}), and {best.log_dir} is of no voter;"
            f" if those disks are lost, collect what is left: {collect}"
        )
        return
    command = shell_command("quorum reset --dry-run", [best.log_dir])
    yield (
        f"{disks}, a majority is missing (nodes {nodes}); if those disks are lost:"
        f" {command} --voter {best.node_id if best.node_id is not None else 'ID'}@HOST:PORT"
    )
