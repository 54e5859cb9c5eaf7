"""``kdump delete-records`` moves the log start offset, as a broker does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.freeing import (
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
from builders.in_process import Outcome
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    topic_record,
    write_metadata_log,
)
from builders.trees import contents_of, tree_of
from builders.verified import END_OFFSET, LogModel
from kdump.formats import names

NAMED = ("--partition", "orders-0")
ORDERS = (*NAMED, "--config=cleanup.policy=delete")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a clean log directory of one partition, with segments at 0 and 12, and 18 its end."""
    return LogModel().write(tmp_path / "logs").parent


def delete(root: Path, before: int, *options: str) -> Outcome:
    return run("delete-records", root, *ORDERS, "--before", str(before), *options)


def test_a_dry_run_changes_nothing_at_all(root: Path) -> None:
    before = tree_of(root)

    assert delete(root, 13, "--dry-run").exit_status == 0

    assert tree_of(root) == before


@pytest.mark.parametrize(
    ("offset", "left", "line"),
    [(5, [0, 12], {"orders-0": 5}), (12, [12], {}), (13, [12], {"orders-0": 13})],
)
def test_the_log_starts_at_the_offset_and_the_directory_stays_clean(
    root: Path, offset: int, left: list[int], line: dict[str, int]
) -> None:
    assert delete(root, offset).exit_status == 0
    deleted = contents_of(root)

    assert logs_of(root / "orders-0") == left
    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == line
    assert verify(root) == 0
    assert delete(root, offset).exit_status == 0
    assert contents_of(root) == deleted


def test_files_that_a_compaction_has_not_finished_are_deleted_too(root: Path) -> None:
    (root / "orders-0" / f"{0:020d}.log.cleaned").write_bytes(b"x" * 5000)

    assert delete(root, 5).exit_status == 0

    assert not list(root.rglob("*.cleaned"))
    assert verify(root) == 0


def test_everything_replicated_can_be_deleted(root: Path) -> None:
    write_line(root, names.REPLICATION_OFFSET_CHECKPOINT, ("orders", 0), 15)

    assert delete(root, -1).exit_status == 0

    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == {"orders-0": 15}
    assert verify(root) == 0


def test_with_undo_data_it_can_be_undone(root: Path) -> None:
    before = contents_of(root)

    delete(root, 13, "--undo")

    assert logs_of(root / "orders-0") == [12]
    assert run("undo", root).exit_status == 0
    assert contents_of(root) == before


def test_an_offset_before_the_log_start_changes_nothing(root: Path) -> None:
    delete(root, 13)
    before = contents_of(root)

    assert delete(root, 3).exit_status == 0

    assert contents_of(root) == before


def test_nothing_after_the_high_watermark_is_deleted_unless_it_is_assumed(root: Path) -> None:
    write_line(root, names.REPLICATION_OFFSET_CHECKPOINT, ("orders", 0), None)
    before = contents_of(root)

    refused = delete(root, 13)
    nothing = delete(root, -1)

    assert refused.exit_status == 8
    assert b"no line" in refused.stderr
    assert b"replication-offset-checkpoint has no line for the partition" in nothing.stdout
    assert contents_of(root) == before
    assert delete(root, -1, "--high-watermark=end").exit_status == 0
    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == {"orders-0": END_OFFSET}


def test_offsets_that_a_broker_refuses_are_refused(root: Path) -> None:
    second_partition(root, "__consumer_offsets-0", {})
    before = contents_of(root)

    for args, status in [
        ([*NAMED, "--config=cleanup.policy=compact"], 8),
        (["--partition=__consumer_offsets-0"], 8),
        ([*ORDERS, "--config=remote.storage.enable=true"], 4),
        (["--partition=__cluster_metadata-0"], 16),
        (["--partition=orders-1"], 16),
    ]:
        assert run("delete-records", root, "--before=5", *args).exit_status == status, args

    assert contents_of(root) == before


def test_a_compacted_log_is_kept_if_its_policy_is_unknown(root: Path) -> None:
    write_line(root, names.CLEANER_OFFSET_CHECKPOINT, ("orders", 0), 12)
    before = contents_of(root)

    assert run("delete-records", root, *NAMED, "--before=5").exit_status == 4

    assert contents_of(root) == before


def test_nothing_is_deleted_from_a_topic_with_an_unknown_policy(root: Path) -> None:
    before = contents_of(root)

    outcome = run("delete-records", root, *NAMED, "--before=5")

    assert outcome.exit_status == 4
    assert b"cleanup.policy of its topic is not known" in outcome.stdout
    assert contents_of(root) == before


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_the_policy_is_read_from_the_metadata_on_another_disk(
    root: Path, tmp_path: Path, policy: str
) -> None:
    other = tmp_path / "other"
    (other / "unused-0").mkdir(parents=True)
    shutil.copy(root / names.META_PROPERTIES, other)
    shutil.copy(root / names.CLEAN_SHUTDOWN_MARKER, other)
    config = config_record(TOPIC_RESOURCE, "orders", "cleanup.policy", policy)
    write_metadata_log(other, [topic_record("orders", 1), config])

    for how in ([root, other], [root, "--metadata", other]):
        run("delete-records", *how, *NAMED, "--before=5")

        is_deleted = lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == {"orders-0": 5}
        assert is_deleted is (policy == "delete")


def test_a_partition_in_two_directories_is_left_unchanged(root: Path) -> None:
    other = LogModel().write(root.parent / "other").parent
    before = contents_of(root.parent)

    outcome = run("delete-records", root, other, *ORDERS, "--before=5")

    assert outcome.exit_status == 4
    assert b"it has two directories" in outcome.stdout
    assert contents_of(root.parent) == before


def test_records_are_deleted_from_the_log_and_not_from_a_copy_of_it(root: Path) -> None:
    other = move_to_another_disk(root)
    before = contents_of(other)

    outcome = run("delete-records", other, root, *ORDERS, "--before=5")

    assert outcome.exit_status == 0
    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == {"orders-0": 5}
    assert contents_of(other) == before

    alone = run("delete-records", other, *ORDERS, "--before=5")

    assert alone.exit_status == 16
    assert b"a copy whose log is in another log directory: name that directory, too" in (
        alone.stderr
    )
    assert contents_of(other) == before


ROLLED: Final = "index-tiny-0"
"""A partition of the fixture; its replica is assigned to the first log directory."""


@pytest.mark.parametrize("has_log", [False, True], ids=["alone", "beside its log"])
def test_a_copy_that_becomes_the_log_is_the_log(
    has_log: bool, fixtures: Path, quick_path: Path
) -> None:
    d1, d2 = (
        Path(shutil.copytree(fixtures / "out" / "clean" / name, quick_path / name))
        for name in ("d1", "d2")
    )
    if has_log:
        shutil.copytree(d1 / ROLLED, d2 / ROLLED)
    (d1 / ROLLED).rename(d1 / f"{ROLLED}.{'4' * 32}-future")
    freed = rows_of("retain", d1, d2, f"--partition={ROLLED}", "--free=20K", "--dry-run")
    words: list[str | Path] = [
        d1,
        d2,
        f"--partition={ROLLED}",
        "--before=60",
        "--config=cleanup.policy=delete",
    ]

    assert run("delete-records", *words).exit_status == 0

    assert lines_of(d1, names.LOG_START_OFFSET_CHECKPOINT)[ROLLED] == 60
    assert ROLLED not in lines_of(d2, names.LOG_START_OFFSET_CHECKPOINT)
    (from_copy,) = (
        each for each in of_type(freed, "partition") if each["directory"].startswith(f"{ROLLED}.4")
    )
    assert from_copy["left_because"] is None


def test_the_log_directories_of_several_brokers_are_refused(root: Path) -> None:
    other = LogModel().write(root.parent / "other").parent
    properties = other / names.META_PROPERTIES
    properties.write_bytes(properties.read_bytes().replace(b"node.id=7", b"node.id=8"))
    before = contents_of(root.parent)

    outcome = run("delete-records", root, other, *ORDERS, "--before=5")

    assert outcome.exit_status == 16
    assert b"takes the log directories of one broker at a time" in outcome.stderr
    assert contents_of(root.parent) == before


@pytest.mark.parametrize("number", ["00", "+0", "0_0", " 0", "\u0660", "2147483648", "-0"])
def test_a_number_in_another_form_than_kafkas_is_refused(root: Path, number: str) -> None:
    before = contents_of(root)

    partition = (f"--partition=orders-{number}", "--before=5")
    offset = (*NAMED, f"--before={number}")
    assert run("delete-records", root, *partition).exit_status == 16
    if int(number) == 0:
        assert run("delete-records", root, *offset).exit_status == 16

    assert contents_of(root) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), b"requires --partition TOPIC-PARTITION"),
        (("--topic=*",), b"one partition at a time: --topic * matches 2"),
        (("--partition=0",), b"one partition at a time: --partition 0 matches 2"),
    ],
)
def test_exactly_one_partition_must_be_selected(
    root: Path, args: tuple[str, ...], message: bytes
) -> None:
    second_partition(root, "payments-0", {})
    before = contents_of(root)

    outcome = run("delete-records", root, *args, "--before=5")

    assert outcome.exit_status == 16
    assert message in outcome.stderr
    assert contents_of(root) == before


def test_a_directory_after_an_unclean_shutdown_must_be_recovered_first(root: Path) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()

    outcome = delete(root, 5)

    assert outcome.exit_status == 4
    assert f"run 'kdump recover {root}' first" in outcome.stderr.decode()


def test_a_run_does_what_its_dry_run_previewed(root: Path) -> None:
    args = (root, *ORDERS, "--before", "13")

    predicted = rows_of("delete-records", "--dry-run", *args)
    done = rows_of("delete-records", *args)

    assert [{key: row[key] for key in row.keys() - OF_A_RUN} for row in predicted] == [
        {key: row[key] for key in row.keys() - OF_A_RUN} for row in done
    ]
    (row,) = of_type(done, "partition")
    assert (row["old_log_start_offset"], row["log_start_offset"]) == (0, 13)
    assert [each["is_deleted"] for each in row["segments"]] == [True, False]


def test_every_field_is_in_the_manual(root: Path) -> None:
    said = rows_of("delete-records", "--dry-run", root, *ORDERS, "--before=13")

    assert fields_missing_from("kdump-retain", said) == set()
