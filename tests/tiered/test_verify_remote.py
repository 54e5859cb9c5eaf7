"""``kdump verify --remote`` holds remote segments against their metadata and the local logs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import run_kdump
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer
from builders.tiered_fixture import TieredFixture
from kdump.check.invariants import INVARIANTS
from kdump.formats.remote_names import RemoteFileKind
from kdump.formats.uuids import ZERO_UUID, format_uuid
from kdump.log.headers import batch_spans
from kdump.storage.local_disk import local

Row = dict[str, Any]
REMOTE_CODES = {code for code in INVARIANTS if code.startswith("remote-")}


def verified(disks: TieredFixture, *words: str) -> tuple[list[Row], int]:
    """Verify the leader's disk; return the findings about remote segments, and the exit status."""
    given = ["verify", "--output", "jsonl", *words, "--remote", disks.remote, disks.leader]
    outcome = run_kdump([str(word) for word in given], Path.cwd())
    findings = [row for row in objects(outcome.stdout) if row["type"] == "finding"]
    remote = str(disks.remote)
    is_remote = [
        each["code"] in REMOTE_CODES or each["path"].startswith(remote) for each in findings
    ]
    return [
        each for each, keep in zip(findings, is_remote, strict=True) if keep
    ], outcome.exit_status


def found(disks: TieredFixture, topic: str) -> dict[str, Row]:
    """Return the findings about the remote segments of a topic by code, one of each."""
    return {each["code"]: each for each in verified(disks, "--topic", topic)[0]}


def logs(disks: TieredFixture, partition: str) -> list[Path]:
    (folder,) = disks.remote.glob(f"kafka-tiered-storage/{partition}-*")
    return sorted(folder.glob("*.log"))


def files_of(log: Path) -> list[Path]:
    return sorted(log.parent.glob(f"{log.stem}.*"))


def test_only_what_broker_1_copied_before_it_lost_the_election_is_an_orphan(
    tiered: TieredFixture,
) -> None:
    findings, _ = verified(tiered)
    assert {each["code"] for each in findings} == {"remote-segment-orphan"}
    of_topics = {Path(each["path"]).parent.name.rsplit("-", 2)[0] for each in findings}
    assert "moved" in {name.partition("-")[0] for name in of_topics}
    assert not {"cut", "kept"} & {name.partition("-")[0] for name in of_topics}


def test_a_partition_without_damage_has_a_report(tiered: TieredFixture) -> None:
    words = ["verify", "--output", "json", "--topic", "cut", "--remote", str(tiered.remote)]
    outcome = run_kdump([*words, str(tiered.leader)], Path.cwd())
    answer = all_objects(outcome.stdout)
    assert problem_of_answer("verify", answer) is None
    assert outcome.exit_status == 0
    local_row, remote_row = (row for row in answer if row["type"] == "partition")
    assert local_row["log_dir"] == str(tiered.leader)
    assert remote_row["log_dir"] == str(tiered.remote / "kafka-tiered-storage")
    first = int(logs(tiered, "cut-0")[0].name[:20])
    assert remote_row["records"] == tiered.offsets["cut-0"]["latest-tiered"] + 1 - first
    assert remote_row["worst"] is None


@pytest.mark.parametrize(
    "kind", [kind for kind in RemoteFileKind if kind is not RemoteFileKind.TRANSACTION_INDEX]
)
def test_a_missing_file_of_a_segment_is_found(
    tiered_copy: TieredFixture, kind: RemoteFileKind
) -> None:
    gone = logs(tiered_copy, "cut-0")[-1].with_suffix(kind.value)
    gone.unlink()
    finding = found(tiered_copy, "cut")["remote-segment-missing"]
    assert (finding["path"], finding["severity"]) == (str(gone), "error")
    assert (finding["loss"] is not None) == (kind is RemoteFileKind.LOG)


def test_a_missing_transaction_index_is_found_where_there_should_be_one(
    tiered_copy: TieredFixture,
) -> None:
    has_one = [log for log in logs(tiered_copy, "tx-0") if log.with_suffix(".txnindex").exists()]
    has_one[0].with_suffix(".txnindex").unlink()
    finding = found(tiered_copy, "tx")["remote-segment-missing"]
    assert finding["path"].endswith(".txnindex")


def test_a_missing_segment_that_is_also_local_is_a_warning(tiered_copy: TieredFixture) -> None:
    for file in files_of(logs(tiered_copy, "kept-0")[0]):
        file.unlink()
    finding = found(tiered_copy, "kept")["remote-segment-missing"]
    assert (finding["severity"], finding["loss"]) == ("warning", None)


def test_a_log_that_was_cut_has_another_size_and_a_torn_batch(tiered_copy: TieredFixture) -> None:
    log = logs(tiered_copy, "cut-0")[-1]
    log.write_bytes(log.read_bytes()[:-7])
    codes = found(tiered_copy, "cut")
    assert codes["remote-segment-size"]["found"] == f"{log.stat().st_size} bytes"
    assert codes["torn-tail"]["path"] == str(log)


def test_a_flipped_bit_inside_is_found_at_its_batch(tiered_copy: TieredFixture) -> None:
    log = logs(tiered_copy, "cut-0")[-1]
    with local(log).open_file() as file:
        second = list(batch_spans(file))[1]
    content = bytearray(log.read_bytes())
    content[second.next_position - 1] ^= 1
    log.write_bytes(content)
    codes = found(tiered_copy, "cut")
    assert set(codes) == {"batch-checksum"}
    assert codes["batch-checksum"]["position"] == second.position


def test_the_log_of_another_segment_has_other_offsets(tiered_copy: TieredFixture) -> None:
    first, second, *_ = logs(tiered_copy, "cut-0")
    shutil.copyfile(first, second)
    assert "remote-segment-offsets" in found(tiered_copy, "cut")


@pytest.mark.parametrize("suffix", [".snapshot", ".leader_epoch_checkpoint"])
def test_a_malformed_small_file_is_found(tiered_copy: TieredFixture, suffix: str) -> None:
    path = logs(tiered_copy, "cut-0")[0].with_suffix(suffix)
    path.write_bytes(b"\x01garbage")
    finding = found(tiered_copy, "cut")["remote-segment-file"]
    assert finding["path"] == str(path)


def test_offsets_that_no_segment_has_are_lost(tiered_copy: TieredFixture) -> None:
    drop_metadata(tiered_copy)
    gone = logs(tiered_copy, "cut-0")[-2]
    for file in files_of(gone):
        file.unlink()
    finding = found(tiered_copy, "cut")["remote-offsets-missing"]
    after = int(logs(tiered_copy, "cut-0")[-1].name[:20])
    assert finding["loss"] == f"offsets {max(33, int(gone.name[:20]))} to {after - 1}"


def drop_metadata(disks: TieredFixture) -> None:
    for folder in disks.leader.glob("__remote_log_metadata-*"):
        shutil.rmtree(folder)


def test_segments_without_metadata_are_judged_by_their_files(tiered_copy: TieredFixture) -> None:
    drop_metadata(tiered_copy)
    assert set(found(tiered_copy, "cut")) == {"remote-metadata-missing"}


def test_two_copies_of_a_segment_overlap(tiered_copy: TieredFixture) -> None:
    drop_metadata(tiered_copy)
    log = logs(tiered_copy, "cut-0")[0]
    for file in files_of(log):
        other = f"{file.name[:21]}{format_uuid(ZERO_UUID)}{file.suffix}"
        shutil.copyfile(file, file.with_name(other))
    finding = found(tiered_copy, "cut")["remote-segment-overlap"]
    assert (finding["severity"], finding["offset"]) == ("info", int(log.name[:20]))


def metadata_log_of(disks: TieredFixture, topic: str) -> Path:
    """Return the log of remote log metadata that has the records of a topic with one partition."""
    (log,) = (
        log
        for log in disks.leader.glob("__remote_log_metadata-*/*.log")
        if topic.encode() in log.read_bytes()
    )
    return log


def of_last_record(log: Path, topic: str) -> tuple[int, int]:
    """Return the bytes of the last batch that names a topic."""
    data = log.read_bytes()
    with local(log).open_file() as file:
        spans = [
            (span.position, span.next_position)
            for span in batch_spans(file)
            if topic.encode() in data[span.position : span.next_position]
        ]
    return spans[-1]


@pytest.mark.parametrize(("topic", "what"), [("kept", "copy"), ("cut", "deletion")])
def test_an_event_without_its_last_record_is_unfinished(
    tiered_copy: TieredFixture, topic: str, what: str
) -> None:
    log = metadata_log_of(tiered_copy, topic)
    start, _ = of_last_record(log, topic)
    log.write_bytes(log.read_bytes()[:start])
    finding = found(tiered_copy, topic)["remote-segment-unfinished"]
    assert (finding["severity"], what in finding["what"]) == ("warning", True)
    is_there = finding["path"] == str(logs(tiered_copy, f"{topic}-0")[-1])
    assert is_there == (what == "copy")


def test_a_damaged_record_of_the_metadata_is_found(tiered_copy: TieredFixture) -> None:
    log = metadata_log_of(tiered_copy, "cut")
    start, end = of_last_record(log, "cut")
    content = bytearray(log.read_bytes())
    content[end - 1] ^= 1
    log.write_bytes(content)
    finding = found(tiered_copy, "cut")["remote-metadata-malformed"]
    assert (finding["path"], finding["position"]) == (str(log), start)


def test_the_files_of_a_topic_that_the_metadata_do_not_know_are_orphans(
    tiered_copy: TieredFixture,
) -> None:
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/cut-0-*")
    shutil.copytree(folder, folder.with_name(f"gone-7-{format_uuid(ZERO_UUID)}"))
    findings, status = verified(tiered_copy, "--topic", "gone", "--topic", "cut")
    assert {each["code"] for each in findings} == {"remote-segment-orphan"}
    assert status == 0


def test_remote_segments_are_not_repaired(tiered: TieredFixture) -> None:
    words = ["verify", "--repair", "--remote", str(tiered.remote), str(tiered.leader)]
    outcome = run_kdump(words, Path.cwd())
    assert outcome.exit_status == 16
    assert b"mutually exclusive" in outcome.stderr


def test_nothing_is_written(tiered_copy: TieredFixture) -> None:
    def state() -> list[tuple[str, int, int]]:
        return [
            (str(path), path.stat().st_mtime_ns, path.stat().st_size)
            for path in sorted(tiered_copy.folder.rglob("*"))
        ]

    before = state()
    verified(tiered_copy)
    assert state() == before


def test_no_repair_of_remote_damage_is_suggested(tiered_copy: TieredFixture) -> None:
    log = logs(tiered_copy, "cut-0")[-1]
    log.write_bytes(log.read_bytes()[:-7])
    words = ["verify", "--topic", "cut", "--remote", tiered_copy.remote, tiered_copy.leader]
    outcome = run_kdump([str(word) for word in words], Path.cwd())
    assert outcome.exit_status == 4
    assert b"consumers get errors" in outcome.stdout
    assert b"recover" not in outcome.stdout
