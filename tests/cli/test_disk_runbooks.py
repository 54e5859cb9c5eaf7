"""Runbooks that lead over the disks of stopped brokers, by the lines that people copy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batch, batches, record
from builders.group_records import offset_key, offset_value
from builders.in_process import Outcome, run_kdump
from builders.log_dir_trees import original_of
from builders.log_directories import META_PROPERTIES, write_log_directory, write_partition
from builders.read_records import all_records, data_records
from builders.runbook import Followed, words_of
from builders.trees import contents_of, tree_of
from kdump.formats import names

BEFORE_MS: Final = 1_795_269_840_000
"""14:04 of the day in the runbook *Back to a moment*: a minute before the deployment."""

MINUTE_MS: Final = 60_000


def write_disk(path: Path, *, node: int = 7, clean: bool = True) -> Path:
    """Write a log directory without partitions; the last letter of its name is in its id."""
    write_log_directory(path, clean=clean)
    own = META_PROPERTIES.replace(b"node.id=7", b"node.id=%d" % node)
    own = own.replace(b"V1dW8O41RR6", b"V1dW8O41RR" + path.name[-1:].encode())
    (path / names.META_PROPERTIES).write_bytes(own)
    return path


def with_a_wrong_checksum(log: list[bytes], damaged: int) -> bytes:
    """Join batches; one does not have the checksum of its bytes."""
    data = bytearray(b"".join(log))
    data[len(b"".join(log[: damaged + 1])) - 1] ^= 1
    return bytes(data)


def codes_in(outcome: Outcome) -> set[bytes]:
    return set(re.findall(rb"\[([a-z-]+)\]", outcome.stdout))


def offsets_in(partition: Path) -> list[int]:
    return [each.offset for each in data_records(all_records(partition))]


def test_after_a_power_failure_what_is_valid_is_kept_and_undo_leads_back(tmp_path: Path) -> None:
    first = write_disk(tmp_path / "data-1", clean=False)
    second = write_disk(tmp_path / "data-2", clean=False)
    write_partition(first / "orders-3", {0: with_a_wrong_checksum(batches(4), 1)})
    write_partition(second / "orders-4", {0: b"".join(batches(3)) + bytes(1000)})
    (second / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"garbage")
    before = {each: original_of(each) for each in (first, second)}
    instead = {"/data/1": first, "/data/2": second}
    followed = Followed("power-failure", tmp_path, instead)

    info, verify, preview = followed.run("info", "verify", "recover")
    assert len(re.findall(rb"Clean shutdown: +no", info.stdout)) == 2
    assert {b"batch-checksum", b"checkpoint-malformed", b"zero-fill"} <= codes_in(verify)
    assert "losing 2 batches (offsets 6\u201311, 6 records)" in preview.stdout.decode()
    salvage_preview, salvage = followed.run("recover", "recover")
    assert b"nothing written" in salvage_preview.stdout
    assert b"would" not in salvage.stdout.partition(b"orders-3:")[2]
    assert "lost: offsets 3\u20135, 3 records" in salvage.stdout.decode()
    repair_preview, repair = followed.run("verify", "verify")
    assert b"nothing written" in repair_preview.stdout
    assert repair.exit_status == 1
    recover, verified, nothing_left = followed.run("recover", "verify", "recover")
    assert [each.exit_status for each in (recover, verified, nothing_left)] == [0, 0, 0]
    assert offsets_in(first / "orders-3") == [0, 1, 2, *range(6, 12)]

    listed, undone = followed.run("undo", "undo")
    assert b"recover" in listed.stdout
    assert undone.exit_status == 0
    while run_kdump(["undo", str(second)], tmp_path).exit_status == 0:
        pass
    assert {each: original_of(each) for each in before} == before
    assert [each.exit_status for each in followed.run("undo", "undo")] == [0, 0]
    assert followed.left == []


def test_a_disk_that_is_looked_at_stays_as_it_was(tmp_path: Path) -> None:
    log_dir = write_disk(tmp_path / "data-1", clean=False)
    partition = write_partition(log_dir / "orders-0", {0: with_a_wrong_checksum(batches(3), 1)})
    log = partition / "00000000000000000000.log"
    before = tree_of(log_dir)
    instead = {"DIR...": log_dir, "DIR": log_dir, "FILE...": log, "FILE": log}
    followed = Followed("inspect-a-disk", tmp_path, instead)

    info, listed, verify = followed.run("info", "ls", "verify")
    assert b"a-cluster" in info.stdout
    assert re.search(rb"^orders +0 ", listed.stdout, re.MULTILINE)
    assert b"batch-checksum" in codes_in(verify)
    dumped, followed_records = followed.run("dump-segment", "dump-segment")
    assert dumped.exit_status == 4
    assert dumped.stdout.count(b"isvalid: false") == 1
    rows = [json.loads(line) for line in followed_records.stdout.splitlines()]
    believed = {row["position"] for row in rows if row.get("is_valid")}
    offsets = [row["offset"] for row in rows if row.get("batch_position") in believed]
    assert offsets == [0, 1, 2, 6, 7, 8]
    assert followed.left == []
    assert tree_of(log_dir) == before


@pytest.fixture
def brokers(tmp_path: Path) -> Mapping[str, Path]:
    """Write three brokers' disks: good records until 14:04, bad ones from 14:06, a group."""
    log = [
        batch([record(0, b"a", b"good", timestamp=BEFORE_MS)]),
        batch([record(1, b"b", b"good", timestamp=BEFORE_MS + 1)]),
        batch(
            [
                record(at, b"a", b"deployment=broken", timestamp=BEFORE_MS + at * MINUTE_MS)
                for at in (2, 3)
            ]
        ),
    ]
    commits = [
        batch([record(0, offset_key(b"billing"), offset_value(2, BEFORE_MS), timestamp=BEFORE_MS)]),
        batch(
            [
                record(
                    1,
                    offset_key(b"billing"),
                    offset_value(4, BEFORE_MS + 3 * MINUTE_MS),
                    timestamp=BEFORE_MS + 3 * MINUTE_MS,
                )
            ]
        ),
    ]
    disks = {f"/data/{node}": tmp_path / f"broker-{node}" for node in (1, 2, 3)}
    for node, path in enumerate(disks.values(), start=1):
        write_disk(path, node=node)
        write_partition(path / "orders-0", {0: b"".join(log)})
        write_partition(path / "__consumer_offsets-0", {0: b"".join(commits)})
    return disks


def test_back_to_a_moment_cuts_all_brokers_alike_and_can_be_undone(
    tmp_path: Path, brokers: Mapping[str, Path]
) -> None:
    before = {each: original_of(each) for each in brokers.values()}
    followed = Followed("back-to-a-moment", tmp_path, brokers)

    found, looked_up, preview, _ = followed.run("grep", "lookup", "rewind", "rewind")
    assert found.stdout.count(b"deployment=broken") == 2
    assert b"14:06:00" in looked_up.stdout
    assert b"nothing written" in preview.stdout
    assert {each: original_of(each) for each in before} == before
    lines = json.loads((tmp_path / "offsets.json").read_text())["partitions"]
    assert {"topic": "orders", "partition": 0, "offset": 2}.items() <= lines[-1].items()

    cut, again = followed.run("rewind", "rewind")
    assert cut.exit_status == 1
    assert again.exit_status == 0
    for disk in brokers.values():
        assert offsets_in(disk / "orders-0") == [0, 1]
    # That takes a cluster: tests/cluster/test_rewound_metadata.py does it.
    steps, followed.left = followed.left[:3], followed.left[3:]
    assert [each.split()[:2] for each in steps] == [["kdump", "metadata"]] * 3
    verified, groups, compared = followed.run("verify", "groups", "diff")
    assert verified.exit_status == 0
    assert re.search(rb"billing +orders +0 +2 ", groups.stdout)
    assert compared.exit_status == 0

    (undone,) = followed.run("undo")
    assert undone.exit_status == 0
    assert original_of(brokers["/data/1"]) == before[brokers["/data/1"]]
    # What is left undoes the steps that take a cluster.
    assert followed.left == ["kdump undo /data/c"]


def test_a_person_is_forgotten_on_a_broker_and_the_certificate_holds(tmp_path: Path) -> None:
    first, second = write_disk(tmp_path / "data-1"), write_disk(tmp_path / "data-2")
    for disk, number in ((first, 0), (second, 1)):
        keys = (b"alice-4711", b"bob", b"alice-47", *(b"key-%d" % at for at in range(20)))
        log = [batch([record(at, key, b"a value")]) for at, key in enumerate(keys)]
        write_partition(disk / f"customers-{number}", {0: b"".join(log)})
    (tmp_path / "ids.txt").write_text("alice-4711\n")
    before = contents_of(first)
    followed = Followed(
        "person-asks-to-be-forgotten", tmp_path, {"/data/1": first, "/data/2": second}
    )

    searched, preview, erased, undone = followed.run("grep", "erase", "erase", "undo")
    assert b"customers-0" in searched.stdout
    assert b"2 partitions: 2 of 46 records to erase" in preview.stdout
    assert erased.exit_status == 1
    assert undone.exit_status == 0
    assert contents_of(first) == before

    again = words_of("kdump erase --topic 'customers*' --keys-file ids.txt", {})[1:]
    assert run_kdump([*again, str(first), str(second)], tmp_path).exit_status == 1
    finished, proven = followed.run("erase", "erase")
    assert (finished.exit_status, proven.exit_status) == (0, 0)
    assert offsets_in(first / "customers-0") == [*range(1, 23)]
    assert (tmp_path / "erased-broker-1.json").exists()
    assert b"alice-4711" not in b"".join(
        path.read_bytes() for disk in (first, second) for path in disk.rglob("*") if path.is_file()
    )
    assert followed.left == []
