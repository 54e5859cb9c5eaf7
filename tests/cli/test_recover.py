"""``kdump recover`` does what a starting broker does, with a preview and an undo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batches
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.loading import Clock, LoaderServer
from builders.log_directories import offset_checkpoint
from builders.manual import document_of
from builders.message_sets import message_07
from builders.trees import contents_of, tree_of
from builders.verified import END_OFFSET, LogModel, file, write_topic_id
from kdump.apply.journal_replay import Replay
from kdump.broker.loader.load_context import IndexSettings
from kdump.cli import main
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import FileKind, TopicPartition

OF_A_RUN = {"is_applied", "undos", "is_dry_run", "seconds"}
"""Fields that differ between a dry run and the run itself."""


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """Return a clean log directory."""
    return LogModel().write(tmp_path / "logs").parent


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Return the log directory of a killed broker, without damage."""
    return unclean(LogModel(), tmp_path)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return that directory with a damaged batch in the active segment and a leftover file."""
    model = LogModel()
    model.segments[12][1] = with_flipped_bit(model.segments[12][1])
    root = unclean(model, tmp_path)
    (root / "orders-0" / "00000000000000000012.log.cleaned").write_bytes(b"half")
    return root


def unclean(model: LogModel, tmp_path: Path, recovery_point: int = 12) -> Path:
    """Write a log directory as a killed broker leaves it."""
    model.is_clean = False
    root = model.write(tmp_path / "logs").parent
    file(root / "orders-0", END_OFFSET, FileKind.PRODUCER_SNAPSHOT).unlink()
    offsets = {("orders", 0): recovery_point}
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(offsets))
    return root


def with_flipped_bit(content: bytes) -> bytes:
    """Return a batch with one bit of its last record changed."""
    changed = bytearray(content)
    changed[-2] ^= 1
    return bytes(changed)


def second_partition(root: Path, name: str = "payments-0") -> Path:
    """Write another partition with the content of the first."""
    other = root / name
    other.mkdir()
    for each in (root / "orders-0").iterdir():
        (other / each.name).write_bytes(each.read_bytes())
    return other


def recover(*args: str | Path) -> Outcome:
    return run_kdump(["recover", *map(str, args)], Path.cwd())


def rows(*args: str | Path) -> list[dict[str, Any]]:
    outcome = recover("--output", "jsonl", *args)
    assert outcome.stderr == b""
    return objects(outcome.stdout)


def of_type(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in said if row["type"] == kind]


def verify(root: Path) -> int:
    return run_kdump(["verify", str(root)], Path.cwd()).exit_status


def test_a_clean_directory_is_unchanged(clean: Path) -> None:
    before = tree_of(clean)

    outcome = recover(clean)

    assert (outcome.exit_status, outcome.stderr) == (0, b"")
    after = tree_of(clean)
    del before["."], after["."]  # The lock file was created and deleted.
    assert after == before


def test_a_preview_says_how_much_a_starting_broker_reads_again(crashed: Path) -> None:
    active = file(crashed / "orders-0", 12, FileKind.LOG)

    assert b"again" not in recover("--dry-run", crashed).stdout
    (summary,) = of_type(rows("--dry-run", crashed), "summary")
    assert summary["recovered_segments"] == 1
    assert summary["recovered_bytes"] == active.stat().st_size

    os.truncate(active, 1 << 30)  # Preallocated, as a broker leaves it with preallocate=true.
    said = recover("--dry-run", crashed).stdout
    assert b"a starting broker reads 1 segment (1.0 GiB) again before it serves them" in said


def test_an_unclean_shutdown_alone_is_not_damage(crashed: Path) -> None:
    assert recover(crashed).exit_status == 0

    assert (crashed / names.CLEAN_SHUTDOWN_MARKER).read_bytes() == (
        b'{"version":0,"brokerEpoch":-1}'
    )
    assert not (crashed / names.LOCK_FILE).exists()
    assert verify(crashed) == 0


def test_a_dry_run_changes_nothing_at_all(damaged: Path) -> None:
    before = tree_of(damaged)

    assert recover("--dry-run", damaged).exit_status == 4
    assert recover("--dry-run", damaged).exit_status == 4

    assert tree_of(damaged) == before


def test_damage_is_repaired_once_and_can_be_undone(damaged: Path) -> None:
    before = contents_of(damaged)
    assert verify(damaged) == 4

    assert recover(damaged).exit_status == 1
    repaired = contents_of(damaged)

    assert verify(damaged) == 0
    assert recover(damaged).exit_status == 0
    assert contents_of(damaged) == repaired
    assert run_kdump(["undo", str(damaged)], Path.cwd()).exit_status == 0
    assert contents_of(damaged) == before


def test_without_undo_data_no_file_of_kdump_is_left(damaged: Path) -> None:
    assert recover("--no-undo", damaged).exit_status == 1

    assert [path.name for path in damaged.iterdir() if path.name.startswith(".kdump")] == []


def test_a_run_does_what_its_dry_run_previewed(damaged: Path) -> None:
    second_partition(damaged)
    predicted = rows("--dry-run", damaged)
    done = rows(damaged)

    def without(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: row[key] for key in row.keys() - OF_A_RUN} for row in said]

    assert without(predicted) == without(done)


def test_only_the_listed_operations_change_files(damaged: Path) -> None:
    before = contents_of(damaged)
    said = rows("--no-undo", damaged)

    after = contents_of(damaged)
    named = {
        f"{prefix}{name}"
        for row in said
        for prefix in ({"partition": "orders-0/", "directory": ""}.get(row["type"], ""),)
        for each in row.get("operations", ())
        for name in (each["file"], each["source"])
        if name is not None
    }
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed - {names.LOCK_FILE} == named


def test_programs_get_the_losses_and_the_log_end(damaged: Path) -> None:
    (partition,) = of_type(rows("--dry-run", damaged), "partition")

    assert partition["verdict_kind"] == "loss"
    (cut,) = partition["cuts"]
    assert cut["file"] == "00000000000000000012.log"
    assert (cut["batches"], cut["damaged_bytes"]) == (0, cut["size_bytes"])
    assert partition["leftovers"] == [
        {"file": "00000000000000000012.log.cleaned", "outcome": "deleted"}
    ]
    bounds = [
        partition[name]
        for name in ("log_start_offset", "log_end_offset", "recovery_point", "active_base_offset")
    ]
    assert bounds == [0, 15, 15, 12]
    assert partition["leader_epochs"] == [
        {"epoch": 0, "start_offset": 0},
        {"epoch": 1, "start_offset": 12},
    ]


def test_programs_get_the_directory(damaged: Path) -> None:
    (directory,) = of_type(rows("--dry-run", damaged), "directory")

    assert (directory["is_clean"], directory["becomes_clean"]) == (False, True)
    assert directory["recovery_points"] == [{"topic": "orders", "partition": 0, "offset": 15}]
    assert directory["log_start_offsets"] == []
    assert (directory["is_applied"], directory["undos"]) == (False, [])


def test_every_field_is_in_the_manual(damaged: Path) -> None:
    write_refused(damaged, "payments-0")
    text = document_of("kdump-recover").astext()
    words = set(re.findall(r"\w+", text))

    def fields(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(fields, value))
        if isinstance(value, dict):
            return value.keys() | set().union(*map(fields, value.values()))
        return set()

    said = [row for row in rows("--dry-run", damaged) if row["type"] != "finding"]
    verdicts = {kind for row in said for kind in row.get("verdicts", {})}
    assert fields(said) - verdicts - words == {"type"} - words


def write_refused(root: Path, name: str) -> Path:
    """Write a partition that a broker refuses to load."""
    partition = root / name
    partition.mkdir()
    (partition / "x.cleaned").write_bytes(b"")
    write_topic_id(partition)
    return partition


def test_a_refused_partition_is_unchanged_and_the_others_are_repaired(damaged: Path) -> None:
    refused = write_refused(damaged, "payments-0")
    before = tree_of(refused)

    said = rows(damaged)

    assert recover(damaged).exit_status & 4
    assert tree_of(refused) == before
    kinds = {row["directory"]: row["verdict_kind"] for row in of_type(said, "partition")}
    assert kinds == {"orders-0": "loss", "payments-0": "refused"}
    (refusal,) = [each for row in of_type(said, "partition") for each in row["refusals"]]
    assert (refusal["file"], refusal["exception"]) == ("x.cleaned", "NumberFormatException")
    assert [row["code"] for row in of_type(said, "finding")] == ["load-refused"]
    assert not (damaged / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert not (damaged / "orders-0" / "00000000000000000012.log.cleaned").exists()


@pytest.fixture
def with_a_refused_log(tmp_path: Path) -> Path:
    """Return a clean directory with a refused log, and damage in the last batch of another."""
    model = LogModel()
    model.segments[12][-1] = with_flipped_bit(model.segments[12][-1])
    root = model.write(tmp_path / "logs").parent
    write_refused(root, "payments-0")
    return root


@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_other_logs_that_lose_records_without_the_marker_are_named(
    with_a_refused_log: Path, dry_run: list[str]
) -> None:
    said = rows(*dry_run, with_a_refused_log)

    (other,) = of_type(said, "other_log")
    assert (other["directory"], other["log_end_offset"]) == ("orders-0", END_OFFSET)
    assert other["next_start_end_offset"] < END_OFFSET
    assert (
        f"to offset {other['next_start_end_offset']}, from {END_OFFSET}" in other["next_start_why"]
    )


def test_the_next_start_truncates_what_is_named(
    with_a_refused_log: Path, loader_server: LoaderServer
) -> None:
    (other,) = of_type(rows(with_a_refused_log), "other_log")
    shutil.rmtree(with_a_refused_log / "payments-0")

    loader_server.load(with_a_refused_log, IndexSettings(), Clock(), whole=True)

    checkpoint = with_a_refused_log / names.RECOVERY_POINT_CHECKPOINT
    lines = dict(decode_offset_checkpoint(checkpoint.read_bytes()))
    assert lines[TopicPartition("orders", 0)] == other["next_start_end_offset"]


def test_what_salvage_repaired_is_not_at_risk(with_a_refused_log: Path) -> None:
    """Salvage has no way to load a log whose index is a directory, and ends the marker, too."""
    (with_a_refused_log / "payments-0" / f"{0:020d}.log").touch()
    (with_a_refused_log / "payments-0" / f"{0:020d}.index").mkdir()

    said = rows("--policy", "salvage", with_a_refused_log)

    assert of_type(said, "other_log") == []
    assert not (with_a_refused_log / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_a_person_is_told_which_command_keeps_the_records_of_other_logs(
    with_a_refused_log: Path,
) -> None:
    root = with_a_refused_log
    said = b" ".join(recover("--dry-run", root).stdout.split()).decode()
    assert f"{root}/orders-0: damaged, too: a broker truncates it to offset" in said
    assert f"kdump recover --policy salvage --dry-run {root}" in said


def test_repaired_and_unchanged_partitions_add_up(damaged: Path) -> None:
    write_refused(damaged, "payments-0")
    assert recover(damaged).exit_status == 5


@pytest.mark.parametrize(
    "selection", ["--partition payments-0", "--partition pay*-0", "--topic payments"]
)
def test_only_selected_partitions_are_repaired(damaged: Path, selection: str) -> None:
    second_partition(damaged)
    offsets = {("orders", 0): 12, ("payments", 0): 12}
    (damaged / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(offsets))
    before = tree_of(damaged / "orders-0")

    said = rows(*selection.split(), damaged)

    assert [row["directory"] for row in of_type(said, "partition")] == ["payments-0"]
    assert tree_of(damaged / "orders-0") == before
    assert (damaged / names.RECOVERY_POINT_CHECKPOINT).read_bytes() == offset_checkpoint(
        {("orders", 0): 12, ("payments", 0): 15}
    )
    assert not (damaged / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_a_clean_directory_stays_clean_if_the_selection_needs_no_change(
    clean: Path,
) -> None:
    before = contents_of(clean)

    assert recover("--partition", "orders-0", clean).exit_status == 0

    assert contents_of(clean) == before


def test_a_selection_without_a_match_is_an_error(clean: Path) -> None:
    outcome = recover("--partition", "payments*", clean)
    assert outcome.exit_status == 16
    assert b"payments*" in outcome.stderr


def test_a_single_partition_is_refused_with_the_path_to_name(clean: Path) -> None:
    outcome = recover(clean / "orders-0")
    assert outcome.exit_status == 16
    assert str(clean).encode() in outcome.stderr


def test_a_directory_that_is_not_kafkas_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    before = tree_of(tmp_path)

    assert recover(tmp_path).exit_status == 8

    assert tree_of(tmp_path) == before


def test_a_locked_directory_is_refused(damaged: Path) -> None:
    before = contents_of(damaged)
    holder = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'a') as lock:\n"
        "    fcntl.lockf(lock, fcntl.LOCK_EX)\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, damaged / names.LOCK_FILE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        outcome = recover(damaged)
        predicted = recover("--dry-run", damaged)
        assert process.stdin is not None
        process.stdin.close()

    assert outcome.exit_status == 8
    assert f"process {process.pid}".encode() in outcome.stderr
    # What a start would do to logs that still grow cannot be predicted.
    assert predicted.exit_status == 8
    assert predicted.stderr == outcome.stderr
    assert contents_of(damaged) == before


def test_topics_with_remote_storage_are_left_unchanged_and_named(damaged: Path) -> None:
    before = tree_of(damaged / "orders-0")

    said = rows("--config", "remote.storage.enable=true", damaged)

    (partition,) = of_type(said, "partition")
    assert "remote.storage.enable" in partition["left_because"]
    assert tree_of(damaged / "orders-0") == before
    assert recover("--config", "remote.storage.enable=true", damaged).exit_status == 4


def test_a_partition_that_becomes_stray_is_recovered_and_named(crashed: Path) -> None:
    (crashed / "orders-0" / names.PARTITION_METADATA).unlink()

    said = rows("--dry-run", crashed)

    (partition,) = of_type(said, "partition")
    assert (partition["becomes_stray"], partition["left_because"]) == (True, None)
    assert [row["code"] for row in of_type(said, "finding")] == ["partition-metadata-missing"]
    assert recover(crashed).exit_status == 4
    assert (crashed / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_an_unreadable_partition_is_unchanged_and_the_others_are_repaired(damaged: Path) -> None:
    other = second_partition(damaged)
    log = file(other, 12, FileKind.LOG)
    log.unlink()
    log.symlink_to(log)

    outcome = recover(damaged)

    assert outcome.exit_status & 9 == 9
    assert verify(damaged) & 8
    assert not (damaged / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert not (damaged / "orders-0" / "00000000000000000012.log.cleaned").exists()


@pytest.mark.parametrize("target", ["nowhere", names.RECOVERY_POINT_CHECKPOINT])
def test_a_preview_says_what_a_broker_does_where_a_run_is_refused(
    target: str, damaged: Path
) -> None:
    path = damaged / names.RECOVERY_POINT_CHECKPOINT
    path.unlink()
    path.symlink_to(target)

    predicted = recover("--dry-run", "--output", "jsonl", damaged)

    said = objects(predicted.stdout)
    (partition,) = of_type(said, "partition")
    (directory,) = of_type(said, "directory")
    assert partition["verdict_kind"] == "loss"
    assert f"{path}: is a symbolic link to nothing; remove it first" in directory["failure"]
    assert directory["failure"] in predicted.stderr.decode()
    assert predicted.exit_status & 8
    before = tree_of(damaged)
    outcome = recover(damaged)
    assert (outcome.exit_status, outcome.stdout) == (8, b"")
    assert tree_of(damaged) == before


def test_a_malformed_checkpoint_is_rewritten(crashed: Path) -> None:
    (crashed / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"rubbish")

    assert recover(crashed).exit_status == 1

    assert (crashed / names.LOG_START_OFFSET_CHECKPOINT).read_bytes() == b"0\n0\n"


def test_a_partition_with_a_refused_name_prevents_the_clean_marker(
    crashed: Path,
) -> None:
    (crashed / "orders-0.bak").mkdir()

    assert recover(crashed).exit_status == 4

    assert not (crashed / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_partitions_of_deleted_topics_are_unchanged(crashed: Path) -> None:
    deleted = second_partition(crashed, f"payments-0.{'0' * 32}-delete")
    before = tree_of(deleted)

    assert recover(crashed).exit_status == 0

    assert tree_of(deleted) == before
    assert (crashed / names.RECOVERY_POINT_CHECKPOINT).read_bytes() == offset_checkpoint(
        {("orders", 0): END_OFFSET}
    )


def test_a_directory_given_twice_is_recovered_once(damaged: Path) -> None:
    said = rows(damaged, f"{damaged}/.")
    assert len(of_type(said, "directory")) == 1


def test_all_directories_of_a_broker_are_recovered(damaged: Path, tmp_path: Path) -> None:
    other = tmp_path / "second"
    partition = LogModel(is_clean=False).write(other)
    partition.rename(other / "orders-1")
    properties = other / names.META_PROPERTIES
    properties.write_bytes(re.sub(rb"(?m)^directory\.id=.*\n", b"", properties.read_bytes()))

    assert recover(damaged, other).exit_status == 1

    assert all((root / names.CLEAN_SHUTDOWN_MARKER).exists() for root in (damaged, other))


def test_what_keeps_a_broker_from_starting_is_found_in_the_current_directory(damaged: Path) -> None:
    properties = damaged / names.META_PROPERTIES
    reserved = b"directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    properties.write_bytes(re.sub(rb"(?m)^directory\.id=.*\n", reserved, properties.read_bytes()))
    for root in (damaged, Path()):
        outcome = run_kdump(["recover", "--dry-run", "--output", "jsonl", str(root)], damaged)
        found = of_type(objects(outcome.stdout), "finding")
        assert "directory-id-reserved" in [each["code"] for each in found]


def test_salvage_keeps_what_a_broker_would_delete(tmp_path: Path) -> None:
    model = LogModel()
    model.segments[12][0] = with_flipped_bit(model.segments[12][0])
    root = unclean(model, tmp_path)
    (by_broker,) = of_type(rows("--dry-run", root), "partition")

    (partition,) = of_type(rows("--policy", "salvage", root), "partition")

    assert (by_broker["log_end_offset"], partition["log_end_offset"]) == (12, END_OFFSET)
    (piece,) = partition["quarantined"]
    assert (piece["first_offset"], piece["last_offset"], piece["records"]) == (12, 14, 3)
    set_aside = root / "orders-0" / piece["into"]
    assert set_aside.read_bytes() == model.segments[12][0]
    assert verify(root) == 0
    assert recover(root).exit_status == 0


def test_salvage_lists_the_first_of_many_damaged_ranges(tmp_path: Path) -> None:
    model = LogModel()
    each = batches(100, base_offset=12)
    each[1:91:3] = map(with_flipped_bit, each[1:91:3])
    model.segments[12] = each
    root = unclean(model, tmp_path)
    options = ("--policy", "salvage", "--dry-run", root)

    def ranges_in(output: str) -> list[str]:
        return [line for line in output.splitlines() if line.startswith("  quarantine")]

    brief, verbose = (
        recover(*options).stdout.decode(),
        recover("--verbose", *options).stdout.decode(),
    )
    (partition,) = of_type(rows(*options), "partition")

    assert "salvaging would quarantine 30 ranges of 1 segment" in brief
    assert max(map(len, brief.splitlines())) < 400
    assert (len(ranges_in(brief)), len(ranges_in(verbose))) == (20, 30)
    assert "  … and 10 more (--verbose shows all)" in brief
    assert len(partition["quarantined"]) == 30
    assert len(partition["verdict"]) < 300


def test_a_log_of_kafka_0_7_ends_after_its_last_valid_message(tmp_path: Path) -> None:
    partition = tmp_path / "logs" / "orders-0"
    partition.mkdir(parents=True)
    log = partition / f"{0:020d}.kafka"
    log.write_bytes(message_07(b"one") + message_07(b"two")[:-1])

    assert recover("--dry-run", tmp_path / "logs").exit_status == 4
    assert recover("--no-undo", tmp_path / "logs").exit_status == 1

    assert log.read_bytes() == message_07(b"one")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["orders-0"]


def test_an_interrupted_run_is_reported_by_a_dry_run_and_completed_by_the_next(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise SystemError("the machine stops here")

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "_cut", stop)
        with pytest.raises(SystemError):
            main.cli.main(["recover", str(damaged)], standalone_mode=False)

    (named,) = of_type(rows("--dry-run", damaged), "interrupted")
    (finished,) = of_type(rows(damaged), "interrupted")

    assert (named["command"], named["is_finished"]) == ("recover", False)
    assert finished["is_finished"] is True
    assert verify(damaged) == 0


def test_people_see_the_losses_and_how_to_undo(damaged: Path) -> None:
    changes, counts, version, loss, *advice = recover(damaged).stdout.decode().splitlines()

    assert changes.endswith(f"changes made; to undo: kdump undo {damaged} 1")
    assert counts == "1 partition, as found: 1 loss"
    assert version == "by the rules of Kafka 4.4: the newest that this kdump knows"
    assert loss.startswith(f"{damaged}/orders-0: done: truncate ")
    assert advice == ["records were lost in 1 partition", f"to undo: kdump undo {damaged} 1"]


def test_preallocated_space_is_truncated_without_loss(crashed: Path) -> None:
    log = file(crashed / "orders-0", 12, FileKind.LOG)
    before = log.read_bytes()
    log.write_bytes(before + bytes(5000))

    (partition,) = of_type(rows("--dry-run", crashed), "partition")
    (cut,) = partition["cuts"]

    assert partition["verdict_kind"] == "unclean"
    assert (cut["is_padding"], cut["size_bytes"], cut["damaged_bytes"]) == (True, 5000, 0)
    assert recover(crashed).exit_status == 0
    assert log.read_bytes() == before


def metadata_log(root: Path) -> Path:
    """Write a cluster's metadata with a damaged last batch and an unfinished snapshot."""
    path = root / "__cluster_metadata-0"
    path.mkdir()
    logs = sorted((root / "orders-0").glob("*.log"))
    (path / logs[0].name).write_bytes(logs[0].read_bytes() + b"\xff" * 100)
    (path / f"{6:020d}-{0:010d}-1.checkpoint.part").write_bytes(b"half")
    return path


def test_the_cluster_metadata_is_unchanged_and_its_recovery_is_previewed(clean: Path) -> None:
    path = metadata_log(clean)
    before = tree_of(path)

    said = of_type(rows("--partition", "__cluster_meta*", clean), "partition")

    assert [(row["verdict_kind"], len(row["leftovers"])) for row in said] == [("loss", 1)]
    assert "--partition" in said[0]["left_because"]
    assert tree_of(path) == before


def test_the_cluster_metadata_is_recovered_if_it_is_named(clean: Path) -> None:
    path = metadata_log(clean)

    (said,) = of_type(rows("--partition", path.name, clean), "partition")

    assert said["left_because"] is None
    log = file(clean / "orders-0", 0, FileKind.LOG)
    assert (path / log.name).read_bytes() == log.read_bytes()
    assert not list(path.glob("*.part"))
    assert (clean / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_a_stray_partition_that_a_broker_would_truncate_is_left_unchanged(damaged: Path) -> None:
    log = damaged / "orders-0"
    stray = log.rename(log.with_name(f"{log.name}.184f5a4c945d4277a4671794019b3c74-stray"))
    before = contents_of(stray)

    preview = run_kdump(["recover", "--dry-run", str(damaged)], damaged)
    outcome = run_kdump(["recover", str(damaged)], damaged)

    assert b"although it is a -stray directory" in preview.stdout
    assert preview.exit_status & 4
    assert b"records were lost" not in outcome.stdout
    assert contents_of(stray) == before
    # It is clean now: a starting broker would not recover the log.
    assert run_kdump(["recover", "--dry-run", str(damaged)], damaged).exit_status == 0
