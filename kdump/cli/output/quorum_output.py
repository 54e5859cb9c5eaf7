"""What ``kdump quorum show`` prints: controllers' disks by rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.metadata_output import committed_line
from kdump.cli.output.rendering import Column, Row
from kdump.cli.output.sections import Section
from kdump.rows.row_type import Kind
from kdump.storage.place_names import kdump_command
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.jobs.metadata.metadata_copies import CopyComparison, MetadataCopy
    from kdump.jobs.quorum.quorum_ranking import QuorumRanking

SECTIONS: Final = (
    Section(
        "copy",
        "Copies of the metadata, the most advanced one first",
        (
            Column("rank", "Rank", Kind.NUMBER),
            Column("log_dir", "Directory"),
            Column("node_id", "Node", Kind.NUMBER),
            Column("epoch", "Epoch", Kind.NUMBER),
            Column("end_offset", "End", Kind.NUMBER),
            Column("verdict", "Compared"),
            Column("snapshot_end_offset", "Snapshot", Kind.NUMBER, unknown="none", dropped=4),
            Column("snapshot_epoch", "Snapshot epoch", Kind.NUMBER, for_people=False),
            Column("quorum_epoch", "Quorum epoch", Kind.NUMBER, dropped=3),
            Column("quorum_leader_id", "Quorum leader", for_people=False),
            Column("quorum_voted_id", "Voted for", for_people=False),
            Column("directory_id", "Directory id", dropped=2),
            Column("cluster_id", "Cluster", dropped=1),
            Column("common_end_offset", "Common end", for_people=False),
            Column("common_epoch", "Common epoch", for_people=False),
            Column("differing_offset", "Differing offset", for_people=False),
            Column("path", "Path", for_people=False),
        ),
    ),
    Section(
        "voter",
        "Voters",
        (
            Column("node_id", "Voter", Kind.NUMBER),
            Column("directory_id", "Directory id", unknown="-", dropped=1),
            Column("endpoints", "Listeners", unknown="-"),
            Column("log_dir", "Directory", unknown="not shown"),
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
