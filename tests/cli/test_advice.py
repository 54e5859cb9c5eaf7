"""The command that keeps valid batches is suggested if no other does."""

from __future__ import annotations

import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.freeing import run
from builders.log_directories import (
    TOPIC_ID,
    offset_checkpoint,
    write_log_directory,
    write_partition,
)
from builders.metadata_log import topic_record, write_metadata_log
from builders.recovery import joined, of_producer
from builders.verified import LogModel
from kdump.errors import ExitStatus
from kdump.formats import names

SALVAGE = "kdump recover --policy salvage"


def lines(*args: str | Path) -> list[str]:
    return run(*map(str, args)).stdout.decode().splitlines()


def write(path: Path, *, flushed: int = 0) -> Path:
    """Write an unclean directory with two partitions of two segments, flushed up to an offset."""
    write_log_directory(path, clean=False)
    for name in ("orders-0", "other-0"):
        logs = {
            base: joined(of_producer(base + n, sequence=base + n) for n in range(6))
            for base in (0, 6)
        }
        write_partition(path / name, logs)
    points = {("orders", 0): flushed, ("other", 0): 12}
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(points))
    return path


def flip(path: Path) -> None:
    """Damage the last byte of the third of six batches in the first segment of ``orders-0``."""
    log = path / "orders-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2 - 1] ^= 1
    log.write_bytes(content)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a directory with a damaged batch that was flushed."""
    path = write(tmp_path / "d 1", flushed=12)
    flip(path)
    return path


def test_verify_suggests_salvage_for_a_flushed_damaged_batch(log_dir: Path) -> None:
    expected = f"{SALVAGE} --partition orders-0 {shlex.quote(str(log_dir))}"

    assert lines("verify", log_dir)[-1].endswith(f"keep every valid batch: {expected}")
    assert lines("verify", log_dir / "orders-0")[-1].endswith(expected)


def test_verify_repair_suggests_it_too_and_leaves_the_batch(log_dir: Path) -> None:
    outcome = run("verify", "--repair", log_dir)

    assert outcome.exit_status & ExitStatus.DAMAGE_LEFT
    assert f"{SALVAGE} --partition orders-0" in outcome.stdout.decode().splitlines()[-1]


def test_a_preview_of_recovery_says_that_flushed_segments_are_not_checked(
    log_dir: Path,
) -> None:
    quoted = shlex.quote(str(log_dir))

    (found,) = [line for line in lines("recover", "--dry-run", log_dir) if "not checked" in line]

    assert f"run 'kdump verify {quoted}'" in found
    assert f"'{SALVAGE} {quoted}' keeps every valid one" in found


def test_a_preview_of_a_loss_names_the_preview_of_salvage(tmp_path: Path) -> None:
    path = write(tmp_path / "d1")
    flip(path)

    assert lines("recover", "--dry-run", path)[-1].endswith(f": {SALVAGE} --dry-run {path}")


def test_a_preview_of_a_refusal_names_the_command(tmp_path: Path) -> None:
    path = write(tmp_path / "d1")
    log = path / "orders-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1  # of the base offset of the fourth batch
    log.write_bytes(content)
    expected = f"keep every valid batch: {SALVAGE} --partition orders-0 {path}"

    assert any(line.endswith(expected) for line in lines("recover", "--dry-run", path))


def write_metadata_no_command_changes(log_dir: Path) -> Path:
    metadata = write_metadata_log(log_dir, [topic_record("orders", TOPIC_ID.int)]).path.local_path
    (metadata / "x.swap").touch()
    (log_dir / names.META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=a\n")
    return metadata


@pytest.mark.parametrize("words", [["verify"], ["recover", "--dry-run"]])
def test_no_repair_is_suggested_for_what_no_command_changes(
    words: list[str], tmp_path: Path
) -> None:
    said = lines(*words, write_metadata_no_command_changes(tmp_path / "d1").parent)
    assert any("would refuse to start" in line for line in said)
    assert not any("--repair" in line for line in said)


def test_the_metadata_of_the_cluster_is_known_without_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_metadata_no_command_changes(tmp_path / "d1"))
    assert not any("--repair" in line for line in lines("verify", "."))


def test_after_the_suggested_command_nothing_is_suggested(log_dir: Path) -> None:
    words = shlex.split(lines("verify", log_dir)[-1].partition("batch: kdump ")[2])

    assert run(*words).exit_status & ExitStatus.REPAIRED
    assert not any(SALVAGE in line for line in lines("verify", log_dir))


def test_configuration_is_part_of_the_command(tmp_path: Path) -> None:
    path = write(tmp_path / "d1", flushed=12)
    flip(path)
    given = "--config=cleanup.policy=delete"

    last = lines("verify", given, path)[-1]

    assert last.endswith(f"{SALVAGE} --partition orders-0 {given} {path}")


def test_nothing_is_suggested_for_a_torn_tail(tmp_path: Path) -> None:
    path = write(tmp_path / "d1")
    log = path / "orders-0" / "00000000000000000006.log"
    log.write_bytes(log.read_bytes()[:-3])

    assert not any(SALVAGE in line for line in lines("verify", path))

    assert not any("keep every valid batch" in line for line in lines("verify", path))


def test_programs_get_no_suggestion(log_dir: Path) -> None:
    assert SALVAGE not in run("verify", "--output", "jsonl", log_dir).stdout.decode()


def damage_the_recovery_points(path: Path) -> None:
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"rubbish")


def previewed(*args: str | Path) -> list[str]:
    """Return the command that verify suggests to preview a repair."""
    found = [line for line in lines("verify", *args) if line.startswith("to preview a repair")]
    return [word for line in found for word in shlex.split(line) if word in map(str, args)]


def test_a_repair_is_previewed_for_all_directories_of_the_broker(tmp_path: Path) -> None:
    valid, damaged = write(tmp_path / "d1"), write_log_directory(tmp_path / "d2", clean=False)
    properties = damaged / names.META_PROPERTIES
    lines_of_properties = properties.read_bytes().splitlines(keepends=True)
    properties.write_bytes(
        b"".join(line for line in lines_of_properties if not line.startswith(b"directory.id"))
    )
    damage_the_recovery_points(damaged)

    assert previewed(valid, damaged) == [str(valid), str(damaged)]


def test_a_loss_is_previewed_for_all_directories_of_the_broker(tmp_path: Path) -> None:
    torn, valid = write(tmp_path / "d1"), write(tmp_path / "d2")
    shutil.rmtree(valid / "orders-0")
    shutil.rmtree(torn / "other-0")
    flip(torn)
    (said,) = [line for line in lines("verify", torn, valid) if "what a broker would lose" in line]
    assert said.endswith(f": kdump recover --dry-run {torn} {valid}")


def test_a_directory_with_deleted_partitions_only_is_previewed_too(tmp_path: Path) -> None:
    path = write_log_directory(tmp_path / "d1", clean=False)
    (path / "orders-0.184f5a4c945d4277a4671794019b3c74-delete").mkdir()
    damage_the_recovery_points(path)

    assert previewed(path) == [str(path)]


def test_damage_of_a_directory_is_not_counted_for_its_first_partition(log_dir: Path) -> None:
    flip(log_dir)  # restored
    damage_the_recovery_points(log_dir)

    assert not any(SALVAGE in line for line in lines("verify", log_dir))
    assert previewed(log_dir) == [str(log_dir)]


def packed(path: Path) -> str:
    """Pack a directory into a tar archive; returns the directory's path in it."""
    with tarfile.open(path.with_suffix(".tar"), "w") as archive:
        archive.add(path, path.name)
    return f"{path.with_suffix('.tar')}!/{path.name}"


def commands(*args: str | Path) -> list[list[str]]:
    """Return the commands that verify suggests on log directories, as a shell splits them."""
    found = [line.partition(": kdump ") for line in lines("verify", *args)]
    split = [shlex.split(command) for _, is_command, command in found if is_command]
    return [words for words in split if words[0] != "explain"]


def test_what_is_in_an_archive_is_copied_before_it_is_salvaged(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = packed(log_dir)
    copying, salvaging = commands(damaged)
    assert copying == ["copy", damaged, "copy"]
    assert salvaging == ["recover", "--policy", "salvage", "--partition", "orders-0", "copy"]

    monkeypatch.chdir(log_dir.parent)
    for command in (copying, salvaging):
        assert not run(*command).exit_status & ExitStatus.OPERATIONAL_ERROR


def test_what_is_in_an_archive_is_copied_before_a_repair_is_previewed(log_dir: Path) -> None:
    flip(log_dir)  # restored
    damage_the_recovery_points(log_dir)
    damaged = packed(log_dir)
    assert commands(damaged)[0] == ["copy", damaged, "copy"]
    assert ["verify", "--repair", "--dry-run", "copy"] in commands(damaged)


def test_each_archive_has_a_copy_of_its_own(log_dir: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "d2", flushed=12)
    flip(other)
    first, second, *_, salvaging = commands(packed(log_dir), packed(other))

    assert [first[2], second[2]] == ["copy", "copy-2"]
    assert sorted(salvaging[-2:]) == ["copy", "copy-2"]


def rename_the_last_log(partition: Path) -> None:
    """As if its offsets began earlier: the segment before has those of the new name."""
    (partition / f"{12:020d}.log").rename(partition / f"{9:020d}.log")


def empty_the_transaction_index(partition: Path) -> None:
    (partition / f"{0:020d}.txnindex").write_bytes(b"")


@pytest.mark.parametrize("damage", [rename_the_last_log, empty_the_transaction_index])
def test_following_the_advice_ends_what_a_starting_broker_would_only_hide(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    partition = LogModel().write(tmp_path / "d1")
    damage(partition)
    log_dir = partition.parent
    assert run("verify", log_dir).exit_status & ExitStatus.DAMAGE_LEFT

    (advised,) = commands(log_dir)
    done = run(*(word for word in advised if word != "--dry-run"))

    assert done.exit_status == ExitStatus.REPAIRED
    assert run("verify", log_dir).exit_status == 0


@pytest.mark.parametrize("content", [None, b"", b"cluster.id=x"], ids=["missing", "empty", "cut"])
def test_identity_is_named_where_no_other_directory_has_the_ids(
    tmp_path: Path, content: bytes | None
) -> None:
    log_dir = write_log_directory(tmp_path / "d1")
    write_metadata_log(log_dir, [topic_record("orders", 1)])
    damage_meta_properties(log_dir, content)

    assert commands(log_dir) == [["identity", str(log_dir)]]


def test_a_repair_is_named_where_another_directory_has_the_ids(tmp_path: Path) -> None:
    valid, damaged = (write_log_directory(tmp_path / name) for name in ("d1", "d2"))
    damage_meta_properties(damaged, b"")

    repair = ["verify", "--repair", "--dry-run", str(valid), str(damaged)]
    assert commands(valid, damaged) == [repair]


def damage_meta_properties(log_dir: Path, content: bytes | None) -> None:
    properties = log_dir / names.META_PROPERTIES
    if content is None:
        properties.unlink()
    else:
        properties.write_bytes(content)


@pytest.mark.parametrize(("name", "is_repaired"), [("sold-0", False), ("bills-0", True)])
def test_a_repair_of_the_topic_id_is_named_where_the_cluster_has_the_topic(
    tmp_path: Path, name: str, is_repaired: bool
) -> None:
    log_dir = write_log_directory(tmp_path / "d1")
    topics = [topic_record("orders", TOPIC_ID.int), topic_record("bills", 1)]
    write_metadata_log(log_dir, topics)
    write_partition(log_dir / name, {0: of_producer(0)})
    assert "partition-metadata-other-topic" in "\n".join(lines("verify", log_dir))

    assert bool(commands(log_dir)) is is_repaired
