"""``kdump retain`` deletes what a broker would delete, and explains why the rest is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import BASE_TIMESTAMP_MS
from builders.freeing import (
    ALL_IS_OLD,
    EVERY_TOPIC,
    FIRST_IS_OLD,
    OF_A_RUN,
    fields_missing_from,
    lines_of,
    logs_of,
    move_to_another_disk,
    of_type,
    rows_of,
    run,
    second_partition,
    verify,
    write_line,
)
from builders.log_directories import TOPIC_ID, offset_checkpoint
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    topic_record,
    write_metadata_log,
)
from builders.trees import contents_of, tree_of
from builders.verified import END_OFFSET, LogModel
from kdump.apply.journal_record import JournalRecord
from kdump.apply.journal_replay import Replay
from kdump.cli import main
from kdump.formats import names

ALL = EVERY_TOPIC
REPLICATED = {names.REPLICATION_OFFSET_CHECKPOINT: END_OFFSET}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a clean log directory of one partition, with segments at 0 and 12, and 18 its end."""
    return LogModel().write(tmp_path / "logs").parent


def test_a_dry_run_changes_nothing_at_all(root: Path) -> None:
    before = tree_of(root)

    assert run("retain", "--dry-run", root, *ALL, *FIRST_IS_OLD).exit_status == 0
    assert run("retain", "--dry-run", "--undo", root, *ALL, *FIRST_IS_OLD).exit_status == 0

    assert tree_of(root) == before


def test_old_segments_are_deleted_once_and_the_directory_stays_clean(root: Path) -> None:
    assert run("retain", root, *ALL, *FIRST_IS_OLD).exit_status == 0
    retained = contents_of(root)

    assert logs_of(root / "orders-0") == [12]
    assert names.CLEAN_SHUTDOWN_MARKER in retained
    assert verify(root) == 0
    assert run("retain", root, *ALL, *FIRST_IS_OLD).exit_status == 0
    assert contents_of(root) == retained


def test_no_file_of_kdump_is_left(root: Path) -> None:
    run("retain", root, *ALL, *FIRST_IS_OLD)

    assert not list(root.glob(".kdump*"))
    assert not (root / names.LOCK_FILE).exists()


def test_with_undo_data_it_can_be_undone(root: Path) -> None:
    before = contents_of(root)

    outcome = run("retain", "--undo", root, *ALL, *FIRST_IS_OLD)

    assert f"freed only by 'kdump undo --discard {root} 1'" in outcome.stdout.decode()
    assert logs_of(root / "orders-0") == [12]
    assert run("undo", root).exit_status == 0
    assert contents_of(root) == before


def test_a_run_does_what_its_dry_run_previewed(root: Path) -> None:
    second_partition(root, "payments-0", REPLICATED)

    predicted = rows_of("retain", "--dry-run", root, *ALL, *FIRST_IS_OLD)
    done = rows_of("retain", root, *ALL, *FIRST_IS_OLD)

    assert [{key: row[key] for key in row.keys() - OF_A_RUN} for row in predicted] == [
        {key: row[key] for key in row.keys() - OF_A_RUN} for row in done
    ]


def test_a_completely_old_log_continues_at_its_end(root: Path) -> None:
    assert run("retain", root, *ALL, *ALL_IS_OLD).exit_status == 0
    retained = contents_of(root)

    assert logs_of(root / "orders-0") == [END_OFFSET]
    assert verify(root) == 0
    for _ in range(2):
        assert run("retain", root, *ALL, *ALL_IS_OLD).exit_status == 0
        assert contents_of(root) == retained


def test_only_selected_topics_lose_segments(root: Path) -> None:
    other = second_partition(root, "payments-0", REPLICATED)
    before = tree_of(other)

    run("retain", root, "--topic", "ord*", *FIRST_IS_OLD)

    assert tree_of(other) == before
    assert lines_of(root, names.RECOVERY_POINT_CHECKPOINT) == {"orders-0": 18, "payments-0": 18}
    assert verify(root) == 0


def test_explain_says_why_each_segment_is_kept_and_when_it_expires(root: Path) -> None:
    text = run("retain", "--dry-run", "--explain", root, *ALL, *FIRST_IS_OLD).stdout.decode()
    (row,) = of_type(rows_of("retain", "--dry-run", root, *ALL, *FIRST_IS_OLD), "partition")

    goes_at_ms = BASE_TIMESTAMP_MS + 17 + 1000 + 1
    first, second = row["segments"]
    assert (first["is_deleted"], first["why"]) == (True, "it is older than retention.ms")
    assert (second["is_deleted"], second["goes_at_ms"]) == (False, goes_at_ms)
    assert "00000000000000000000.log" in text
    assert "delete: it is older than retention.ms" in text
    assert "keep: it is not older than retention.ms; expires at 20" in text
    assert (
        run("retain", root, *ALL, f"--now={goes_at_ms}", "--config=retention.ms=1000").exit_status
        == 0
    )
    assert logs_of(root / "orders-0") == [END_OFFSET]


def test_a_timestamp_in_the_future_is_reported_as_holding_retention_back(root: Path) -> None:
    args = (f"--now={BASE_TIMESTAMP_MS - 5}", "--config=retention.ms=0")

    outcome = run("retain", root, *ALL, *args)

    assert "orders-0: held back by a timestamp in the future" in outcome.stdout.decode()
    assert logs_of(root / "orders-0") == [0, 12]


def test_each_topics_own_retention_is_read_from_the_metadata(root: Path) -> None:
    second_partition(root, "payments-0", REPLICATED)
    write_metadata_log(
        root,
        [
            topic_record("orders", 1),
            topic_record("payments", 2),
            config_record(TOPIC_RESOURCE, "orders", "retention.ms", "1000"),
            config_record(TOPIC_RESOURCE, "orders", "cleanup.policy", "delete"),
            config_record(TOPIC_RESOURCE, "payments", "cleanup.policy", "compact"),
            config_record(TOPIC_RESOURCE, "payments", "retention.ms", "1000"),
        ],
    )

    said = rows_of("retain", root, "--topic=*", f"--now={BASE_TIMESTAMP_MS + 10**12}")

    assert logs_of(root / "orders-0") == [END_OFFSET]
    assert logs_of(root / "payments-0") == [0, 12]
    held_back = {row["topic"]: row["held_back"] for row in of_type(said, "partition")}
    assert held_back == {"orders": [], "payments": ["policy"]}


def test_kafkas_defaults_alone_delete_nothing(root: Path) -> None:
    before = contents_of(root)

    for topics in (ALL, ("--topic=orders",)):
        outcome = run("retain", root, *topics)
        assert outcome.exit_status == 4
        said = outcome.stdout.decode()
        assert "neither retention.ms nor retention.bytes of its topic is known" in said
        assert said.count("--server-properties FILE") == 1

    assert contents_of(root) == before


def test_a_compacted_log_is_kept_if_its_policy_is_unknown(root: Path) -> None:
    write_line(root, names.CLEANER_OFFSET_CHECKPOINT, ("orders", 0), 12)
    before = contents_of(root)

    for how in (FIRST_IS_OLD, ("--free", "1")):
        outcome = run("retain", root, "--topic=orders", *how)
        assert outcome.exit_status == (4 if how is FIRST_IS_OLD else 12)

    assert contents_of(root) == before
    given = "--config=cleanup.policy=compact,delete"
    assert run("retain", root, "--topic=orders", *FIRST_IS_OLD, given).exit_status == 0
    assert logs_of(root / "orders-0") == [12]


@pytest.mark.parametrize("how", [ALL_IS_OLD, ("--free", "1")], ids=["by age", "free"])
@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("remote.storage.enable=false", "cleanup.policy of its topic is not known"),
        ("cleanup.policy=delete", "not known whether its topic has remote.storage.enable"),
    ],
)
def test_a_pattern_selects_no_topic_with_unknown_policy_or_remote_storage(
    root: Path, how: tuple[str, ...], known: str, said: str
) -> None:
    before = contents_of(root)

    outcome = run("retain", root, "--topic=*", *how, "--config", known)

    assert outcome.exit_status == (4 if how is ALL_IS_OLD else 12)
    assert said in (outcome.stdout + outcome.stderr).decode()
    assert contents_of(root) == before


def test_all_settings_that_a_pattern_needs_are_named_at_once(root: Path) -> None:
    said = run("retain", root, "--topic=*", "--dry-run").stdout.decode()
    by_hand = "cleanup.policy=... --config remote.storage.enable=false --config retention.ms=..."
    assert f"or --config {by_hand}" in said
    assert "left unchanged: cleanup.policy of its topic is not known" in said


def test_a_named_topic_needs_only_its_retention(root: Path) -> None:
    assert run("retain", root, "--topic=orders", *FIRST_IS_OLD).exit_status == 0
    assert logs_of(root / "orders-0") == [12]


def test_a_topic_without_own_configuration_loses_nothing_by_defaults(root: Path) -> None:
    write_metadata_log(root, [topic_record("orders", 1)])
    before = contents_of(root)
    now = f"--now={BASE_TIMESTAMP_MS + 10**12}"

    for topics in ("--topic=*", "--topic=orders"):
        outcome = run("retain", root, topics, now)
        assert outcome.exit_status == 4
        assert f"{root}/orders-0: left unchanged" in outcome.stdout.decode()

    assert contents_of(root) == before


def test_the_defaults_of_the_brokers_file_apply(root: Path, tmp_path: Path) -> None:
    write_metadata_log(root, [topic_record("orders", 1)])
    file = tmp_path / "server.properties"
    file.write_text("node.id=7\n")
    week_ms = 604_800_000
    given = ("--topic=*", "--server-properties", file)

    for too_early, left in ((1, [12]), (0, [12])):
        now = f"--now={BASE_TIMESTAMP_MS + 11 + week_ms + 1 - too_early}"
        run("retain", root, *given, now)
        assert logs_of(root / "orders-0") == ([0, 12] if too_early else left)


def test_an_unknown_limit_deletes_nothing(root: Path) -> None:
    now = f"--now={BASE_TIMESTAMP_MS + 10**12}"

    (row,) = of_type(
        rows_of("retain", root, *ALL, now, "--config=retention.bytes=1000000"), "partition"
    )

    assert (row["retention_ms"], row["retention_bytes"]) == (None, 1_000_000)
    assert logs_of(root / "orders-0") == [0, 12]


def test_each_value_is_explained_with_its_origin(root: Path, tmp_path: Path) -> None:
    write_metadata_log(
        root,
        [topic_record("orders", 1), config_record(TOPIC_RESOURCE, "orders", "retention.ms", "-1")],
    )
    file = tmp_path / "server.properties"
    file.write_text("log.retention.bytes=5000000\n")
    args = ("--dry-run", "--explain", root, "--topic=orders")

    with_file = run("retain", *args, "--server-properties", file).stdout.decode()
    without = run("retain", *args, "--config=cleanup.policy=delete").stdout.decode()

    assert (
        "  cleanup.policy=delete (Kafka's default, as --server-properties does not set it)\n"
        "  retention.ms=-1 (retention.ms in the topic's configuration in the metadata)\n"
        "  retention.bytes=5000000 (log.retention.bytes in --server-properties)\n"
        "  remote.storage.enable=false"
        " (Kafka's default, as the topic's configuration does not set it)\n"
    ) in with_file
    assert "  cleanup.policy=delete (cleanup.policy in --config)\n" in without
    assert "  retention.bytes is not known\n" in without


def test_metadata_in_another_directory_decides_what_is_deleted(root: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    write_metadata_log(
        apart,
        [
            topic_record("orders", TOPIC_ID.int),
            config_record(TOPIC_RESOURCE, "orders", "cleanup.policy", "delete"),
            config_record(TOPIC_RESOURCE, "orders", "retention.ms", "1000"),
        ],
    )
    before = tree_of(apart)

    args = ("--topic=*", "--metadata", apart, FIRST_IS_OLD[0])
    assert run("retain", root, *args).exit_status == 0

    assert logs_of(root / "orders-0") == [12]
    assert tree_of(apart) == before


@pytest.mark.parametrize("ending", ["deleted", "cleaned"])
def test_files_that_a_broker_was_deleting_or_writing_are_deleted_too(
    root: Path, ending: str
) -> None:
    deleted = root / "orders-0" / f"{0:020d}.log.{ending}"
    deleted.write_bytes(b"x" * 5000)

    predicted = rows_of("retain", "--dry-run", root, *ALL, "--config=retention.ms=-1")
    outcome = run("retain", root, *ALL, "--config=retention.ms=-1")

    assert outcome.exit_status == 0
    assert "orders-0: 1 leftover file deleted, 4.9 KiB" in outcome.stdout.decode()
    assert predicted[-1]["freed_bytes"] == 5000
    assert not deleted.exists()
    assert logs_of(root / "orders-0") == [0, 12]
    assert verify(root) == 0


@pytest.mark.parametrize("ending", ["deleted", "cleaned"])
def test_files_that_a_broker_was_deleting_or_writing_count_as_freed(
    root: Path, ending: str
) -> None:
    (root / "orders-0" / f"{0:020d}.log.{ending}").write_bytes(b"x" * 5000)

    assert run("retain", root, *ALL, "--free=4000").exit_status == 0

    assert not list(root.rglob(f"*.{ending}"))
    assert logs_of(root / "orders-0") == [0, 12]


def test_only_a_partition_with_an_unfinished_swap_is_left_unchanged(root: Path) -> None:
    other = second_partition(root, "payments-0", REPLICATED)
    (other / f"{0:020d}.log.swap").write_bytes(b"")
    before = tree_of(other)

    outcome = run("retain", root, *ALL, *FIRST_IS_OLD)

    assert outcome.exit_status == 4
    assert b"payments-0: left unchanged: it has leftover files" in outcome.stdout
    assert tree_of(other) == before
    assert logs_of(root / "orders-0") == [12]


def test_a_partition_in_two_directories_is_left_unchanged(root: Path) -> None:
    other = LogModel().write(root.parent / "other").parent
    before = contents_of(root.parent)

    outcome = run("retain", root, other, *ALL, *FIRST_IS_OLD)

    assert outcome.exit_status == 4
    for path in (root, other):
        assert f"{path}/orders-0: left unchanged: it has two directories" in outcome.stdout.decode()
    assert contents_of(root.parent) == before


def test_what_prevents_a_broker_start_is_reported(root: Path) -> None:
    (root / "not a partition").mkdir()

    outcome = run("retain", root, *ALL, *FIRST_IS_OLD)

    assert outcome.exit_status == 4
    assert outcome.stdout.startswith(b"severe: ")
    assert b"not a partition" in outcome.stdout


def test_without_a_high_watermark_nothing_is_deleted_unless_it_is_assumed(root: Path) -> None:
    write_line(root, names.REPLICATION_OFFSET_CHECKPOINT, ("orders", 0), None)
    before = contents_of(root)

    outcome = run("retain", root, *ALL, *FIRST_IS_OLD)

    assert outcome.exit_status == 0
    assert "replication-offset-checkpoint has no line for the partition" in outcome.stdout.decode()
    assert contents_of(root) == before
    run("retain", root, *ALL, *FIRST_IS_OLD, "--high-watermark", "end")
    assert logs_of(root / "orders-0") == [12]


def test_nothing_after_the_high_watermark_is_deleted(root: Path) -> None:
    write_line(root, names.REPLICATION_OFFSET_CHECKPOINT, ("orders", 0), 11)

    for how in (FIRST_IS_OLD, ("--free", "1")):
        run("retain", root, *ALL, *how)

    assert logs_of(root / "orders-0") == [0, 12]


def test_the_requested_space_is_freed_oldest_first(root: Path) -> None:
    second_partition(root, "payments-0", REPLICATED)

    (row, other) = of_type(rows_of("retain", root, *ALL, "--free", "1"), "partition")

    assert [row["deleted_segments"], other["deleted_segments"]] == [1, 0]
    assert (logs_of(root / "orders-0"), logs_of(root / "payments-0")) == ([12], [0, 12])
    assert verify(root) == 0


@pytest.mark.parametrize(
    ("name", "timestamp_ms"),
    [("payments-0", 1), ("payments-0", 0), ("orders-0", BASE_TIMESTAMP_MS + 10**9)],
    ids=["too old", "zeroed", "too young"],
)
def test_the_segment_with_the_oldest_records_is_deleted_despite_a_wrong_time_index(
    name: str, timestamp_ms: int, root: Path
) -> None:
    second_partition(root, "payments-0", REPLICATED)
    index = root / name / f"{0:020d}.timeindex"
    size = index.stat().st_size
    index.write_bytes((timestamp_ms.to_bytes(8) + bytes(4)) * (size // 12))

    assert run("retain", root, *ALL, "--free", "1").exit_status == 0

    assert (logs_of(root / "orders-0"), logs_of(root / "payments-0")) == ([12], [0, 12])


def test_nothing_is_freed_of_a_copy_that_will_replace_its_log(root: Path) -> None:
    other = move_to_another_disk(root)
    before = contents_of(other)

    outcome = run("retain", other, root, *ALL, "--free", "1")

    assert outcome.exit_status == 0
    assert len(logs_of(root / "orders-0")) == 1
    assert contents_of(other) == before


def test_a_log_whose_age_is_unknown_frees_nothing_and_others_do(root: Path) -> None:
    second_partition(root, "payments-0", REPLICATED)
    log = root / "orders-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    (root / "orders-0" / f"{0:020d}.timeindex").write_bytes(b"")

    outcome = run("retain", root, *ALL, "--free", "1")

    assert outcome.exit_status == 4
    assert b"its age is unknown" in outcome.stdout
    assert (logs_of(root / "orders-0"), logs_of(root / "payments-0")) == ([0, 12], [12])


def test_if_less_can_be_freed_than_asked_all_of_it_is_freed(root: Path) -> None:
    preview = run("retain", root, *ALL, "--free", "1g", "--dry-run")
    outcome = run("retain", root, *ALL, "--free", "1g")

    assert (preview.exit_status, outcome.exit_status) == (8, 8)
    assert f"only 857 of {1 << 30} bytes can be freed" in preview.stderr.decode()
    assert f"only 857 of {1 << 30} bytes were freed" in outcome.stderr.decode()
    assert logs_of(root / "orders-0") == [END_OFFSET]


@pytest.mark.slow
@pytest.mark.parametrize("how", [ALL_IS_OLD, ("--free", "1")])
def test_internal_topics_are_selected_only_by_name(root: Path, how: tuple[str, ...]) -> None:
    internal = second_partition(root, "__consumer_offsets-0", REPLICATED)
    before = tree_of(internal)

    run("retain", root, *ALL, *how)
    assert tree_of(internal) == before

    deleting = "--config=cleanup.policy=delete"
    run("retain", root, "--topic", "__consumer_offsets", *how, deleting)
    assert logs_of(internal) != [0, 12]


def test_topics_with_remote_storage_are_refused_by_name(root: Path) -> None:
    before = contents_of(root)

    outcome = run("retain", root, *ALL, *ALL_IS_OLD, "--config=remote.storage.enable=true")

    assert outcome.exit_status == 4
    assert b"orders-0: left unchanged: remote.storage.enable is set" in outcome.stdout
    assert contents_of(root) == before


@pytest.mark.parametrize("topic", ["order", "__cluster_metadata"])
def test_topics_that_cannot_be_selected_are_a_usage_error(root: Path, topic: str) -> None:
    assert run("retain", root, "--topic", topic, *ALL_IS_OLD).exit_status == 16


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: (root / names.CLEAN_SHUTDOWN_MARKER).unlink(),
        lambda root: (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"0\nmany\n"),
    ],
    ids=["no marker", "malformed checkpoint"],
)
def test_a_directory_after_an_unclean_shutdown_must_be_recovered_first(root: Path, spoil) -> None:  # type: ignore[no-untyped-def]
    spoil(root)
    before = contents_of(root)

    for options in ((), ("--dry-run",)):
        outcome = run("retain", root, *ALL, *ALL_IS_OLD, *options)
        assert outcome.exit_status == 4
        assert f"run 'kdump recover {root}' first" in outcome.stderr.decode()

    assert contents_of(root) == before


def test_a_malformed_checkpoint_that_recovery_does_not_write_is_set_by_hand(root: Path) -> None:
    path = root / names.REPLICATION_OFFSET_CHECKPOINT
    path.write_bytes(b"0\nmany\n")

    outcome = run("retain", root, *ALL, *ALL_IS_OLD)

    assert outcome.exit_status == 4
    assert "remove it, because a broker reads it as empty" in outcome.stderr.decode()
    path.unlink()
    run("checkpoint", "set", root, "replication-offset", f"orders-0={END_OFFSET}")
    assert run("retain", root, *ALL, *ALL_IS_OLD).exit_status == 0
    assert logs_of(root / "orders-0") == [END_OFFSET]


def test_a_damaged_partition_is_unchanged_and_the_others_lose_old_segments(root: Path) -> None:
    damaged = second_partition(root, "payments-0", REPLICATED)
    (damaged / f"{0:020d}.index").unlink()
    before = tree_of(damaged)

    outcome = run("retain", root, *ALL, *ALL_IS_OLD)

    assert outcome.exit_status == 4
    assert f"run 'kdump recover {root}' first" in outcome.stdout.decode()
    assert tree_of(damaged) == before
    assert logs_of(root / "orders-0") == [END_OFFSET]
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_the_log_start_moves_before_the_first_segment_is_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Replay._remove

    def stop_at_logs(runner: Replay, step: JournalRecord) -> None:
        if step.path.endswith(".log"):
            raise SystemError("the machine stops here")
        remove(runner, step)

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "_remove", stop_at_logs)
        with pytest.raises(SystemError):
            main.cli.main(["retain", str(root), *ALL, *FIRST_IS_OLD], standalone_mode=False)

    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == {"orders-0": 12}
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    (finished,) = of_type(rows_of("retain", root, *ALL, *FIRST_IS_OLD), "interrupted")
    assert finished["is_finished"] is True
    assert logs_of(root / "orders-0") == [12]
    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == {}
    assert verify(root) == 0


def test_every_field_is_in_the_manual(root: Path) -> None:
    said = rows_of("retain", "--dry-run", root, *ALL, *FIRST_IS_OLD)

    assert fields_missing_from("kdump-retain", said) == set()


def test_people_see_what_was_deleted_and_freed(root: Path) -> None:
    first, unknown, second, third, last, version = (
        run("retain", root, *ALL, *FIRST_IS_OLD).stdout.decode().splitlines()
    )

    assert first.startswith(f"{root}/orders-0: 1 of 2 segments deleted, ")
    assert first.endswith("; the log begins at offset 12")
    assert unknown == f"{root}/orders-0: retention.bytes is not known, so it deletes nothing"
    assert second.endswith(" changes made")
    assert third.endswith(" freed")
    assert last.startswith("1 partition: 1 segment deleted, ")
    assert version.startswith("by the rules of Kafka ")


def test_a_preview_names_what_the_log_start_offset_deletes(root: Path) -> None:
    line = offset_checkpoint({("orders", 0): 13})
    (root / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(line)
    young = f"--now={BASE_TIMESTAMP_MS}"

    preview = run("retain", "--dry-run", root, *ALL, "--config=retention.ms=1000", young)
    old = run("retain", "--dry-run", root, *ALL, "--config=retention.ms=1000", *FIRST_IS_OLD)

    named = f"{root}/orders-0: 1 segment before the log start offset 13\n"
    assert named in preview.stdout.decode()
    assert named in old.stdout.decode()


def test_a_segment_that_is_old_only_by_its_time_index_is_kept(root: Path) -> None:
    index = root / "orders-0" / f"{0:020d}.timeindex"
    index.write_bytes(bytes(len(index.read_bytes())))
    before = contents_of(root)

    now = f"--now={BASE_TIMESTAMP_MS + 9_000}"
    outcome = run("retain", root, *ALL, "--config=retention.ms=1000000000000", now)

    assert outcome.exit_status == 4
    assert "the time index of segment 0 is wrong" in outcome.stdout.decode()
    assert contents_of(root) == before
