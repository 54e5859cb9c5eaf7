"""Kafka 0.7: the newest segment is truncated after its last valid message, or salvaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders import damage
from builders.apply_target import apply_target
from builders.message_sets import message_07
from kdump.formats.names import TopicPartition
from kdump.log.partition import Partition, read_partition
from kdump.repair.policies import Policy
from kdump.repair.salvage.recover_0_7 import repair_0_7
from kdump.repair.salvage.recovered_0_7 import Recovered07
from kdump.scan.walk_0_7 import Skipped07, valid_messages
from kdump.storage.local_disk import local
from kdump.target.target_file import CopiedFrom, Gone, Kept, KeptUpTo

PAYLOADS = [b"first", b"", b"third message", b"x" * 300]
MESSAGES = [message_07(payload, magic=at % 2) for at, payload in enumerate(PAYLOADS)]
LOG = b"".join(MESSAGES)
FIRST, SECOND = f"{0:020d}.kafka", f"{len(LOG):020d}.kafka"


def partition(path: Path, *logs: bytes) -> Partition:
    directory = path / "orders-0"
    directory.mkdir()
    base = 0
    for log in logs:
        (directory / f"{base:020d}.kafka").write_bytes(log)
        base += len(log)
    return read_partition(local(directory), TopicPartition("orders", 0))


def damaged_at(position: int) -> bytes:
    log = bytearray(LOG)
    log[position] ^= 1
    return bytes(log)


def messages_of(directory: Path) -> dict[int, bytes]:
    """Payloads of all valid messages by their offsets."""
    found = {}
    for path in directory.glob("*.kafka"):
        with local(path).open_file() as source:
            for step in valid_messages(source):
                if not isinstance(step, Skipped07):
                    found[int(path.name.partition(".")[0]) + step.position] = step.payload
    return found


def test_the_newest_segment_is_truncated_after_its_last_valid_message(tmp_path: Path) -> None:
    at = len(MESSAGES[0]) + len(MESSAGES[1])
    listed = partition(tmp_path, LOG, damaged_at(at + 12))

    outcome = repair_0_7(listed)

    assert outcome.files == {FIRST: Kept(), SECOND: KeptUpTo(at)}
    assert outcome.log_end_offset == len(LOG) + at
    (cut,) = outcome.report.cuts
    assert (cut.loss.batches, cut.loss.damaged_bytes) == (1, len(MESSAGES[2]))


def test_older_segments_are_not_checked(tmp_path: Path) -> None:
    assert repair_0_7(partition(tmp_path, damaged_at(12), LOG)).files == {
        FIRST: Kept(),
        SECOND: Kept(),
    }


@pytest.mark.parametrize("tail", [b"\0" * 40, b"\0\0", b"\0\0\0\x30\1\0abc"])
def test_an_incomplete_message_at_the_end_is_truncated(tmp_path: Path, tail: bytes) -> None:
    assert repair_0_7(partition(tmp_path, LOG + tail)).files == {FIRST: KeptUpTo(len(LOG))}


def test_truncating_drops_everything_after_the_first_damaged_message(tmp_path: Path) -> None:
    outcome = repair_0_7(partition(tmp_path, damaged_at(10), LOG), Policy.TRUNCATE)

    assert outcome.files == {FIRST: KeptUpTo(0), SECOND: Gone()}
    assert outcome.log_end_offset == 0


def test_salvage_keeps_messages_at_their_offsets_and_quarantines_the_rest(tmp_path: Path) -> None:
    start = len(MESSAGES[0]) + len(MESSAGES[1])
    end = start + len(MESSAGES[2])
    listed = partition(tmp_path, damaged_at(start + 12), LOG)

    outcome = repair_0_7(listed, Policy.SALVAGE)

    assert outcome.files == {
        FIRST: KeptUpTo(start),
        f"{end:020d}.kafka": CopiedFrom(FIRST, end, len(LOG)),
        f"damaged-{FIRST}-{start}-{end}": CopiedFrom(FIRST, start, end),
        SECOND: Kept(),
    }


@pytest.mark.parametrize("seed", range(60))
def test_no_valid_message_is_lost(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    payloads = [rng.randbytes(rng.randrange(60)) for _ in range(30)]
    each = [message_07(payload, magic=rng.randrange(2)) for payload in payloads]
    log = bytearray(b"".join(each))
    for _ in range(rng.randrange(1, 4)):
        log = rng.choice(damage.ANY_FILE)(rng, log)
    listed = partition(tmp_path, bytes(log))
    before = messages_of(listed.path.local_path)

    outcome = repair_0_7(listed, Policy.SALVAGE)
    apply_target(listed.path.local_path, outcome.files)

    assert messages_of(listed.path.local_path) == before
    kept = sum(file.stat().st_size for file in listed.path.local_path.glob("[0-9]*.kafka"))
    assert kept + sum(aside.size_bytes for aside in outcome.report.quarantined) == len(log)
    assert _is_settled(repair_0_7(read_partition(listed.path, None), Policy.SALVAGE))


def _is_settled(outcome: Recovered07) -> bool:
    return all(target == Kept() for target in outcome.files.values())
