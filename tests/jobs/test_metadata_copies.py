"""Which of several copies of the metadata is used, and what of it is committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_partition
from builders.metadata_log import topic_record
from kdump.jobs.metadata.metadata_copies import (
    CopyVerdict,
    MetadataCopy,
    committed_end,
    compare_copies,
    read_copies,
)
from kdump.log.directory import read_log_directory
from kdump.storage.local_disk import local

VOTERS = (1, 2, 3)


def leader_change(offset: int, leader: int, epoch: int) -> bytes:
    """A batch in which a leader of three voters is elected."""
    voters = b"".join(voter.to_bytes(4) + b"\0" for voter in VOTERS)
    value = b"\0\0" + leader.to_bytes(4) + b"\x04" + voters + b"\x01\0"
    control = record(offset, b"\0\0\0\x02", value)
    return batch([control], partition_leader_epoch=epoch, attributes=0x20)


def write_copy(root: Path, node: int, epochs: str, quorum_epoch: int | None = None) -> Path:
    """Write a copy whose records have these epochs, each epoch beginning with an election."""
    log = b""
    before = ""
    for offset, epoch in enumerate(epochs):
        if epoch == before:
            values = [record(offset, None, topic_record(f"t{offset}-{epoch}", offset + 1))]
            log += batch(values, partition_leader_epoch=int(epoch))
        else:
            log += leader_change(offset, 1, int(epoch))
        before = epoch
    path = root / f"node-{node}"
    write_partition(path / "__cluster_metadata-0", {0: log})
    (path / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=c\n")
    state = quorum_epoch if quorum_epoch is not None else int(epochs[-1])
    (path / "__cluster_metadata-0" / "quorum-state").write_text(
        f'{{"leaderId":1,"leaderEpoch":{state},"votedId":-1,'
        '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    return path


def copies(*paths: Path) -> list[MetadataCopy]:
    return read_copies([read_log_directory(local(path)) for path in paths])


@pytest.mark.parametrize(
    ("left", "right", "verdict", "common"),
    [
        ("1112", "1112", CopyVerdict.SAME, 4),
        ("1112", "11", CopyVerdict.PREFIX, 2),
        ("1112", "1133", CopyVerdict.DIVERGED, 2),
        ("111", "222", CopyVerdict.DIVERGED, 0),
        ("1122", "1111", CopyVerdict.DIVERGED, 2),
    ],
)
def test_copies_part_where_their_epochs_part(
    left: str, right: str, verdict: CopyVerdict, common: int, tmp_path: Path
) -> None:
    one, other = copies(write_copy(tmp_path, 1, left)), copies(write_copy(tmp_path, 2, right))
    found = compare_copies(one[0].outline, other[0].outline)
    assert (found.verdict, found.common_end_offset) == (verdict, common)


def test_the_copy_with_the_greatest_epoch_counts_even_if_it_is_shorter(tmp_path: Path) -> None:
    found = copies(write_copy(tmp_path, 1, "11111"), write_copy(tmp_path, 2, "112"))
    assert [copy.node_id for copy in found] == [2, 1]


def test_other_content_in_the_same_epoch_is_found(tmp_path: Path) -> None:
    one, other = write_copy(tmp_path, 1, "1111"), write_copy(tmp_path, 2, "1111")
    log = next(other.glob("*/*.log"))
    parts = [leader_change(0, 1, 1)]
    for offset in (1, 2, 3):
        name = "other" if offset == 2 else f"t{offset}-1"
        value = topic_record(name, offset + 1)
        parts.append(batch([record(offset, None, value)], partition_leader_epoch=1))
    log.write_bytes(b"".join(parts))
    found = compare_copies(copies(one)[0].outline, copies(other)[0].outline)
    assert (found.differing_offset, found.common_end_offset, found.is_same) == (2, 2, False)


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (("1111",), None),  # one of three
        (("1111", "1111"), 4),
        (("1111", "111"), 3),
        (("1111", "111", "11"), 3),
        (("1112", "1112", "111"), 4),
        # The epoch of what two have is not the last: a voter with 1113 could win and replace it.
        (("1112", "111", "111"), None),
    ],
)
def test_what_a_majority_has_is_committed_if_no_later_leader_can_have_replaced_it(
    epochs: tuple[str, ...], expected: int | None, tmp_path: Path
) -> None:
    quorum_epoch = max(int(each[-1]) for each in epochs)
    paths = [
        write_copy(tmp_path, node, each, quorum_epoch)
        for node, each in zip(VOTERS, epochs, strict=False)
    ]
    assert committed_end(copies(*paths))[0] == expected


def test_a_broker_does_not_count_as_a_voter(tmp_path: Path) -> None:
    paths = [write_copy(tmp_path, node, "1111") for node in (1, 7, 8)]
    assert committed_end(copies(*paths))[0] is None


def test_two_voters_that_took_part_in_a_later_election_leave_it_open(tmp_path: Path) -> None:
    paths = [write_copy(tmp_path, node, "1111", quorum_epoch=2) for node in (1, 2)]
    assert committed_end(copies(*paths))[0] is None
