"""``kdump compact`` keeps the latest record of each key, with an exact preview."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, record
from builders.compactable_directories import KEYS, NOW_MS, closed, last_values, plain_directory
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.manual import document_of
from builders.trees import Seen, tree_of
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import TopicPartition

NOW = ("--now", str(NOW_MS))
EVERY_TOPIC = (
    "--topic=*",
    "--config=cleanup.policy=compact",
    "--config=remote.storage.enable=false",
)
"""All topics, with the configuration that a pattern requires."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a clean log directory with two partitions."""
    return plain_directory(tmp_path / "logs", ("orders", "users"))


def compact(*args: str | Path) -> Outcome:
    return run_kdump(["compact", *map(str, args), *NOW], Path.cwd())


def rows(*args: str | Path) -> list[dict[str, Any]]:
    found = compact(*args, "--output", "json")
    assert found.stderr == b""
    return objects(found.stdout)


def files_of(root: Path) -> dict[str, Seen]:
    """Return contents and metadata of files; a lock changes the times of directories."""
    return {path: seen for path, seen in tree_of(root).items() if seen.content is not None}


def test_a_dry_run_previews_and_changes_nothing(root: Path) -> None:
    before = tree_of(root)

    partition, _, summary = rows(root, "--topic", "users", "--dry-run")

    assert tree_of(root) == before
    assert (partition["segments_before"], partition["segments_after"]) == (3, 1)
    assert (partition["keys_before"], partition["keys_after"]) == (KEYS, KEYS)
    assert (partition["before"]["records"], partition["after"]["records"]) == (60, KEYS)
    assert partition["records_without_key"] == 1
    assert summary["freed_bytes"] == partition["freed_bytes"] > 1000
    assert summary["expected_seconds"] >= summary["seconds"]


def test_a_run_does_what_the_dry_run_previewed(root: Path) -> None:
    said = rows(root, *EVERY_TOPIC, "--dry-run")
    logs = sum(path.stat().st_size for path in root.rglob("*.log"))

    done = rows(root, *EVERY_TOPIC)

    partitions = [row for row in done if row["type"] == "partition"]
    assert partitions == [row for row in said if row["type"] == "partition"]
    assert len(partitions) == 2
    freed_bytes = logs - sum(path.stat().st_size for path in root.rglob("*.log"))
    assert done[-1]["freed_bytes"] == freed_bytes


def test_a_compacted_directory_is_valid_clean_and_compacted(root: Path) -> None:
    expected = last_values(root / "users-0")
    del expected[None]

    assert compact(root, "--topic", "users").exit_status == 0

    assert last_values(root / "users-0") == expected
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert run_kdump(["verify", str(root)], root).exit_status == 0
    assert not [*root.rglob("*.cleaned"), *root.rglob("*.swap"), *root.glob(".*-*")]
    assert not (root / ".lock").exists()
    lines = decode_offset_checkpoint((root / names.CLEANER_OFFSET_CHECKPOINT).read_bytes())
    assert dict(lines) == {TopicPartition("users", 0): 60}
    before = files_of(root)
    assert compact(root, "--topic", "users").exit_status == 0
    assert files_of(root) == before


def test_other_topics_are_unchanged(root: Path) -> None:
    before = tree_of(root / "orders-0")
    compact(root, "--topic", "users")
    assert tree_of(root / "orders-0") == before


def test_with_undo_data_it_can_be_undone(root: Path) -> None:
    before = files_of(root)

    found = compact(root, *EVERY_TOPIC, "--undo")

    assert b"when the undo data is discarded" in found.stdout
    assert files_of(root) != before
    assert run_kdump(["undo", str(root)], root).exit_status == 0
    assert files_of(root) == before


def test_a_directory_after_an_unclean_shutdown_is_refused(root: Path) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()
    before = files_of(root)

    found = compact(root, "--topic", "users")

    assert found.exit_status == 4
    assert b"run kdump recover first" in found.stdout
    assert files_of(root) == before


def test_recovery_and_compaction_go_together(root: Path) -> None:
    expected = last_values(root / "users-0")
    del expected[None]
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()
    (root / names.RECOVERY_POINT_CHECKPOINT).unlink()
    active = root / "users-0" / f"{60:020d}.log"
    active.write_bytes(active.read_bytes() + b"torn")
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(b"old")

    found = compact(root, *EVERY_TOPIC, "--recover")

    assert found.exit_status == 1
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert last_values(root / "users-0") == expected
    assert len(list(root.rglob("*.log"))) == 4
    assert not list(root.rglob("*.deleted"))
    assert run_kdump(["verify", str(root)], root).exit_status == 0


def test_a_partition_in_two_directories_is_left_unchanged(root: Path, tmp_path: Path) -> None:
    other = plain_directory(tmp_path / "other")
    before = tree_of(root / "users-0"), tree_of(other / "users-0")

    found = compact(root, other, "--topic", "users")

    assert found.exit_status == 4
    assert found.stdout.count(b"it has two directories") == 2
    assert (tree_of(root / "users-0"), tree_of(other / "users-0")) == before


def test_a_pattern_selects_no_topic_with_unknown_configuration(root: Path) -> None:
    before = files_of(root)

    for known, said in (
        ("remote.storage.enable=false", b"cleanup.policy of its topic is not known"),
        ("cleanup.policy=compact", b"not known whether its topic has remote.storage.enable"),
    ):
        found = compact(root, "--topic=*", "--config", known)
        assert found.exit_status == 4
        assert found.stdout.count(said) == 2
    assert files_of(root) == before


def test_unknown_properties_of_a_topic_are_named(root: Path) -> None:
    by_pattern = compact(root, *EVERY_TOPIC, "--dry-run").stdout.decode()
    known = ("--config=min.compaction.lag.ms=0", "--config=delete.retention.ms=1")

    for name in ("min.compaction.lag.ms", "delete.retention.ms"):
        assert f"users-0: {name} is not known" in by_pattern
    assert "is not known" not in compact(root, *EVERY_TOPIC, *known, "--dry-run").stdout.decode()


def with_tombstone(path: Path) -> Path:
    """Return a log directory whose closed segment deletes a key."""
    partition = path / "users-0"
    partition.mkdir(parents=True)
    tombstone = batch([record(0, b"key", b"value"), record(1, b"key", None)])
    (partition / f"{0:020d}.log").write_bytes(tombstone)
    (partition / f"{2:020d}.log").write_bytes(batch([record(2, b"active", b"one")]))
    return closed(path)


def compact_twice(root: Path, *topics: str) -> dict[bytes | None, bytes | None]:
    """Compact, and again a month later as if for the first time; return the remaining records."""
    for now_ms in (NOW_MS, NOW_MS + 30 * 86_400_000):
        (root / names.CLEANER_OFFSET_CHECKPOINT).unlink(missing_ok=True)
        run_kdump(["compact", str(root), *topics, f"--now={now_ms}"], root)
    return last_values(root / "users-0")


def test_no_tombstone_is_deleted_by_a_default_retention(tmp_path: Path) -> None:
    known = "--config=delete.retention.ms=86400000"

    assert b"key" in compact_twice(with_tombstone(tmp_path / "a"), *EVERY_TOPIC)
    assert b"key" not in compact_twice(with_tombstone(tmp_path / "b"), *EVERY_TOPIC, known)
    assert b"key" not in compact_twice(with_tombstone(tmp_path / "c"), "--topic=users")


@pytest.mark.parametrize("suffix", [".log.swap", ".log.deleted"])
def test_a_partition_with_leftover_files_is_refused(root: Path, suffix: str) -> None:
    (root / "users-0" / f"{0:020d}{suffix}").write_bytes(b"")
    before = tree_of(root / "users-0")

    found = compact(root, *EVERY_TOPIC)

    assert found.exit_status == 4
    assert b"users-0: left unchanged" in found.stdout
    assert tree_of(root / "users-0") == before
    assert len(list((root / "orders-0").glob("*.log"))) == 2


def test_incomplete_new_segments_are_removed(root: Path) -> None:
    with_unfinished_files(root)

    assert compact(root, *EVERY_TOPIC).exit_status == 0

    assert not list(root.rglob("*.cleaned"))
    assert len(list((root / "users-0").glob("*.log"))) == 2


def test_a_dry_run_and_a_run_say_which_unfinished_files_go(root: Path) -> None:
    with_unfinished_files(root)

    preview = compact(root, "--topic", "users", "--dry-run").stdout.decode()
    previewed = rows(root, "--topic", "users", "--dry-run")
    done = compact(root, "--topic", "users").stdout.decode()

    what = f"{root}/users-0: 2 unfinished files (.cleaned) of an interrupted change"
    assert f"{what} to delete, 8 B" in preview
    assert f"{what} deleted, 8 B" in done
    partition, _, summary = previewed
    assert (partition["deleted_leftovers"], partition["deleted_leftover_bytes"]) == (2, 8)
    assert summary["freed_bytes"] == partition["freed_bytes"] + 8


def test_unfinished_files_of_a_partition_that_is_not_compacted_stay(root: Path) -> None:
    with_unfinished_files(root)
    policy = ("--topic", "users", "--config", "cleanup.policy=delete")

    partition, *_ = rows(root, *policy, "--dry-run")
    compact(root, *policy)

    assert partition["deleted_leftovers"] == 0
    assert len(list(root.rglob("*.cleaned"))) == 2


def with_unfinished_files(root: Path) -> None:
    (root / "users-0" / f"{0:020d}.log.cleaned").write_bytes(b"half")
    (root / "users-0" / f"{20:020d}.timeindex.cleaned").write_bytes(b"half")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("cleanup.policy=delete", "cleanup.policy of its topic is not compact"),
        ("remote.storage.enable=true", "remote.storage.enable"),
    ],
)
def test_topics_without_compaction_are_refused(root: Path, config: str, why: str) -> None:
    before = tree_of(root / "users-0")

    found = compact(root, "--topic", "users", "--config", config)

    assert found.exit_status == 4
    assert why in found.stdout.decode()
    assert tree_of(root / "users-0") == before


def test_force_compacts_a_topic_without_compaction(root: Path) -> None:
    given = ("--config", "cleanup.policy=delete", "--force")
    assert compact(root, "--topic", "users", *given).exit_status == 0
    assert len(list((root / "users-0").glob("*.log"))) == 2


def test_a_partition_without_a_high_watermark_is_not_compacted(root: Path) -> None:
    (root / names.REPLICATION_OFFSET_CHECKPOINT).unlink()

    partition, *_ = rows(root, "--topic", "users", "--dry-run")
    trusted, *_ = rows(root, "--topic", "users", "--dry-run", "--high-watermark", "end")

    assert (partition["held_by"], partition["held_at"]) == ("high watermark", 0)
    assert partition["freed_bytes"] == 0
    assert (trusted["held_by"], trusted["held_at"]) == ("active segment", 60)
    assert trusted["freed_bytes"] > 0


def test_a_log_with_a_damaged_batch_is_unchanged(root: Path) -> None:
    log = root / "users-0" / f"{20:020d}.log"
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)
    before = tree_of(root / "users-0")

    partition, *_ = rows(root, "--topic", "users")

    (refusal,) = partition["refusals"]
    assert refusal["file"] == log.name
    assert refusal["position"] is not None
    assert tree_of(root / "users-0") == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), b"--topic, --partition or --all-compacted"),
        (("--topic", "users", "--all-compacted"), b"give --topic"),
        (("--topic", "nothing"), b"no partition in"),
        (("--all-compacted",), b"known to be compacted"),
        (("--all-compacted", "--force"), b"mutually exclusive"),
        (("--topic", "users", "--recover", "--dry-run"), b"kdump recover --dry-run"),
    ],
)
def test_conflicting_options_are_refused(root: Path, args: tuple[str, ...], said: bytes) -> None:
    found = compact(root, *args)
    assert found.exit_status == 16
    assert said in found.stderr


def test_the_manual_names_every_field(root: Path) -> None:
    text = document_of("kdump-compact").astext()
    words = set(re.findall(r"\w+", text))
    for row in rows(root, "--topic", "users", "--dry-run"):
        assert row.keys() - {"type"} <= words
        for group in row.get("groups", []):
            assert group.keys() <= words


@pytest.mark.slow
def test_the_directory_of_a_real_broker_is_compacted_and_valid(
    fixtures: Path, tmp_path: Path
) -> None:
    shutil.copytree(fixtures / "out" / "clean", tmp_path, dirs_exist_ok=True)
    for log_dir in ("d1", "d2"):
        (tmp_path / log_dir / names.CLEANER_OFFSET_CHECKPOINT).unlink()
    before = {path: last_values(path) for path in tmp_path.glob("d?/compact[.-_]*-0")}
    assert len(before) == 3

    found = run_kdump(["compact", "d1", "d2", "--all-compacted", "--no-undo"], tmp_path)

    # One partition still has segments that the broker was deleting when it stopped.
    assert found.exit_status == 4
    assert found.stdout.count(b"left unchanged") == 1
    for path, values in before.items():
        left = last_values(path)
        assert values.items() >= left.items()
        assert {k for k, v in values.items() if v is not None and k is not None} <= left.keys() | {
            k for k in values if k is not None and k.startswith(b"\0\0")
        }
    assert run_kdump(["verify", "d1", "d2"], tmp_path).exit_status == 0
    again = run_kdump(["compact", "d1", "d2", "--all-compacted", "--output", "jsonl"], tmp_path)
    assert objects(again.stdout)[-1]["written_bytes"] == 0
