"""Which replica of a coordinator's log ``kdump groups`` believes, and what others have."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, record
from builders.group_records import offset_key, offset_value
from builders.in_process import Outcome, run_kdump
from builders.json_answers import Row, objects
from builders.log_directories import write_log_directory, write_partition
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.log.batch_validity import LogPart
from kdump.log.valid_windows import Damage, valid_windows
from kdump.scan.batches import Window
from kdump.storage.location import StoredFile

LOG: Final = f"{0:020d}.log"
PARTITION: Final = "__consumer_offsets-0"
Commit = tuple[int, bytes, int]
"""Leader epoch, group, offset."""


def groups(root: Path, *words: str) -> Outcome:
    return run_kdump(["groups", *words, *sorted(each.name for each in root.iterdir())], root)


def replica_of(path: Path, *commits: Commit) -> Path:
    """A log directory whose ``__consumer_offsets-0`` has these commits, a batch for each."""
    directory = write_log_directory(path)
    log, epochs = [], list[EpochEntry]()
    for offset, (epoch, group, committed) in enumerate(commits):
        records = [record(offset, offset_key(group), offset_value(committed))]
        log.append(batch(records, partition_leader_epoch=epoch))
        if not epochs or epochs[-1].epoch != epoch:
            epochs.append(EpochEntry(epoch, offset))
    checkpoint = {names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint(epochs)}
    write_partition(directory / PARTITION, {0: b"".join(log)}, others=checkpoint)
    return directory / PARTITION


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def damage(log: Path, number: int, of: int) -> None:
    """Flip a bit in the middle of a batch; all have the same size."""
    content = bytearray(log.read_bytes())
    content[len(content) * number // of + 70] ^= 1
    log.write_bytes(content)


def offsets_in(outcome: Outcome) -> dict[str, tuple[int | None, bool, list[tuple[str, int]]]]:
    """What counts by group, whether it is uncertain, and what other replicas have."""
    return {
        row["group"]: (
            row["committed_offset"],
            row["is_uncertain"],
            [(each["log_dir"], each["offset"]) for each in row["elsewhere"]],
        )
        for row in objects(outcome.stdout)
        if row["type"] == "offset"
    }


def summary_of(outcome: Outcome) -> Row:
    (summary,) = (row for row in objects(outcome.stdout) if row["type"] == "summary")
    return summary


SAME: Final[Sequence[Commit]] = ((0, b"g", 1), (0, b"h", 2), (0, b"g", 3))


def test_the_next_replica_counts_if_the_most_advanced_one_cannot_be_read(tmp_path: Path) -> None:
    advanced = replica_of(tmp_path / "d1", *SAME, (0, b"g", 4))
    replica_of(tmp_path / "d2", *SAME)
    make_fifo(advanced / LOG)
    outcome = groups(tmp_path, "--output", "jsonl")
    assert outcome.exit_status == 8
    assert b"d1/__consumer_offsets-0/00000000000000000000.log" in outcome.stderr
    assert offsets_in(outcome) == {"g": (3, False, []), "h": (2, False, [])}
    assert summary_of(outcome)["skipped"] == [
        {"topic": "__consumer_offsets", "partition": 0, "log_dir": "d1", "read_log_dir": "d2"}
    ]
    assert (
        b"__consumer_offsets-0: read in d2, because its replica in d1 cannot be read completely"
        in groups(tmp_path).stdout
    )


def test_a_whole_replica_counts_before_a_damaged_one_of_the_same_length(tmp_path: Path) -> None:
    damaged = replica_of(tmp_path / "d1", *SAME)
    replica_of(tmp_path / "d2", *SAME)
    damage(damaged / LOG, 1, of=len(SAME))
    outcome = groups(tmp_path, "--output", "jsonl")
    assert outcome.exit_status == 4
    assert offsets_in(outcome) == {"g": (3, False, []), "h": (2, False, [])}


def test_what_damage_took_from_a_replica_that_reaches_further_is_shown_of_the_other_one(
    tmp_path: Path,
) -> None:
    damaged = replica_of(tmp_path / "d1", *SAME, (0, b"g", 4))
    replica_of(tmp_path / "d2", *SAME)
    damage(damaged / LOG, 1, of=4)
    found = offsets_in(groups(tmp_path, "--output", "jsonl"))
    assert found == {"g": (4, False, []), "h": (None, False, [("d2", 2)])}


def test_a_torn_log_does_not_hide_a_longer_replica(tmp_path: Path) -> None:
    torn = replica_of(tmp_path / "d1", *SAME, (0, b"g", 4))
    replica_of(tmp_path / "d2", *SAME, (0, b"g", 4))
    damage(torn / LOG, 3, of=4)
    outcome = groups(tmp_path, "--output", "jsonl")
    assert offsets_in(outcome) == {"g": (4, False, []), "h": (2, False, [])}
    assert [each["log_dir"] for each in summary_of(outcome)["skipped"]] == ["d1"]


def test_a_replica_that_becomes_stray_is_not_believed_and_what_only_it_has_is_shown(
    tmp_path: Path,
) -> None:
    """Its broker has no log after a start, however far the log in the directory reaches."""
    stray = replica_of(tmp_path / "d1", *SAME, (0, b"g", 4))
    replica_of(tmp_path / "d2", *SAME)
    (stray / names.PARTITION_METADATA).unlink()
    found = offsets_in(groups(tmp_path, "--output", "jsonl"))
    assert found == {"g": (3, False, [("d1", 4)]), "h": (2, False, [])}


def test_offsets_that_an_unclean_election_gave_up_are_shown(tmp_path: Path) -> None:
    common = ((0, b"g", 1), (0, b"h", 2))
    replica_of(tmp_path / "d1", *common, (0, b"g", 50), (0, b"only", 7), (0, b"h", 2))
    replica_of(tmp_path / "d2", *common, (1, b"g", 3))
    outcome = groups(tmp_path, "--output", "jsonl")
    assert outcome.exit_status == 0
    assert offsets_in(outcome) == {
        "g": (3, False, [("d1", 50)]),
        "h": (2, False, []),
        "only": (None, False, [("d1", 7)]),
    }
    lost = [row for row in objects(outcome.stdout) if row["type"] == "group"][-1]
    assert (lost["group"], lost["group_type"], lost["state"]) == ("only", None, None)
    assert "d1" in lost["note"]
    assert (
        b"2 other offsets only in replicas of coordinators' logs that parted (d1): compare them"
        b" with 'kdump diff --topic=__consumer_offsets d1 d2'" in groups(tmp_path).stdout
    )


def test_the_offsets_of_another_replica_are_not_moved_to_another_cluster(tmp_path: Path) -> None:
    replica_of(tmp_path / "d1", (0, b"h", 1), (0, b"g", 50), (0, b"g", 51))
    replica_of(tmp_path / "d2", (0, b"h", 1), (1, b"g", 3))
    outcome = groups(tmp_path, "--group", "g", "--output", "reset-csv")
    assert outcome.stdout == b"orders,0,3\n"
    assert b"group g, orders-0: not 51, which only the replica in d1 has" in outcome.stderr


def test_a_replica_that_lags_behind_has_nothing_that_the_leader_has_not(tmp_path: Path) -> None:
    replica_of(tmp_path / "d1", *SAME)
    replica_of(tmp_path / "d2", *SAME, (1, b"g", 4), (1, b"g", 5))
    found = offsets_in(groups(tmp_path, "--output", "jsonl"))
    assert found == {"g": (5, False, []), "h": (2, False, [])}


@pytest.mark.parametrize("cause", ["log", "swap"])
def test_a_partition_that_is_there_and_cannot_be_read_is_not_said_to_be_missing(
    cause: str, tmp_path: Path
) -> None:
    partition = replica_of(tmp_path / "d1", *SAME)
    if cause == "log":
        make_fifo(partition / LOG)
    else:
        # No broker loads a log whose only segment is a swap file of another base offset.
        (partition / LOG).rename(partition / f"{LOG}.swap")
        (partition / f"{7:020d}.log.swap").write_bytes(b"\0" * 100)
        (partition / f"{7:020d}.index.swap").mkdir()
    text = groups(tmp_path)
    assert b"no partition of __consumer_offsets" not in text.stdout
    assert b"__consumer_offsets: partition 0 of 1" in text.stdout
    assert b"cannot be read completely" in text.stdout
    summary = summary_of(groups(tmp_path, "--output", "jsonl"))
    assert summary["consumer_offsets"]["missing_partitions"] == [0]
    assert summary["consumer_offsets"]["unreadable_partitions"] == [0]


def test_what_is_before_a_segment_that_cannot_be_read_is_uncertain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = replica_of(tmp_path / "d1", *SAME)
    last = [record(3, offset_key(b"g"), offset_value(4))]
    (partition / f"{3:020d}.log").write_bytes(batch(last))

    def failing(log: StoredFile, part: LogPart, **others: Any) -> Iterator[Window | Damage]:
        if part.least_offset == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(log.location))
        return valid_windows(log, part, **others)

    monkeypatch.setattr("kdump.log.living_windows.valid_windows", failing)
    outcome = groups(tmp_path, "--output", "jsonl")
    assert outcome.exit_status == 8
    assert offsets_in(outcome) == {"g": (3, True, []), "h": (2, True, [])}
    assert summary_of(outcome)["consumer_offsets"]["unreadable_partitions"] == [0]


def test_no_replica_is_skipped_if_none_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("d1", "d2"):
        replica_of(tmp_path / name, *SAME)

    def failing(log: StoredFile, part: LogPart, **others: Any) -> Iterator[Window | Damage]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(log.location))

    monkeypatch.setattr("kdump.log.living_windows.valid_windows", failing)
    outcome = groups(tmp_path, "--output", "jsonl")
    assert outcome.exit_status == 8
    assert outcome.stderr.count(b"Input/output error") == 2
    assert summary_of(outcome)["skipped"] == []
    assert summary_of(outcome)["consumer_offsets"]["unreadable_partitions"] == [0]


def test_a_forged_number_of_partitions_costs_no_memory(tmp_path: Path) -> None:
    partition = replica_of(tmp_path / "d1", *SAME)
    partition.rename(partition.with_name("__consumer_offsets-2147483647"))
    summary = summary_of(groups(tmp_path, "--output", "jsonl"))
    assert summary["consumer_offsets"]["partitions"] == 2147483648
    assert len(summary["consumer_offsets"]["missing_partitions"]) == 10_000
