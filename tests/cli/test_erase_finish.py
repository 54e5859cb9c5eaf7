"""``kdump erase --finish`` and ``--verify``: nothing is left, or there is no certificate."""

from __future__ import annotations

import errno
import functools
import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, record
from builders.freeing import of_type, rows_of, run
from builders.in_process import Outcome
from builders.json_schemas import problem_of_document
from builders.message_sets import message, wrapper
from builders.trees import contents_of, tree_of
from builders.verified import LogModel
from builders.volatile_files import VolatileFiles
from kdump.apply.lock import hold_locks
from kdump.formats import names, record_batch
from kdump.formats.compression import Codec
from kdump.jobs.erase.certificate import keyed_hash
from kdump.jobs.erase.finish import Finishing
from kdump.repair.erase.erased_list import FILE_NAME

ALICE: Final = b"alice-4711"


def write(root: Path, *records: tuple[bytes | None, bytes], codec: Codec = Codec.NONE) -> Path:
    """Write a clean directory whose first batch has these records."""
    model = LogModel()
    rows = [record(at, *each) for at, each in enumerate(records)]
    rows += [record(at, b"bob", b"v") for at in range(len(records), 3)]
    model.segments[0][0] = batch(rows, codec=codec)
    return model.write(root).parent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory in which Alice's record was erased; undo data keeps it."""
    root = write(tmp_path / "logs", (ALICE, b"her value"), (b"bob", b"his"), codec=Codec.NONE)
    assert erase(root) == 1
    return root


def erase(root: Path, *options: str) -> int:
    args = ("--topic=orders", f"--key={ALICE.decode()}", "--yes", *options)
    return run("erase", *args, root).exit_status


def finish(root: Path, *options: str | Path) -> Outcome:
    certificate = root.parent / "erased.json"
    return run("erase", "--finish", "--certificate", certificate, *options, root)


def certificate_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root.parent / "erased.json").read_text())
    return found


def test_nothing_is_left_and_the_certificate_says_what_is_gone(root: Path) -> None:
    assert any(ALICE in each for each in contents_of(root).values())

    outcome = finish(root)

    assert outcome.exit_status == 0, outcome
    assert not any(ALICE in each or b"her value" in each for each in contents_of(root).values())
    assert not list(root.glob(".kdump-*"))
    assert not (root / FILE_NAME).exists()
    certificate = certificate_of(root)
    salt = bytes.fromhex(certificate["hash"]["salt"])
    assert certificate["keys"] == [keyed_hash(salt, ALICE)]
    (directory,) = certificate["log_directories"]
    ((partition,),) = (each["partitions"] for each in directory["runs"])
    (segment,) = partition["segments"]
    assert (partition["partition"], segment["erased"]) == ("orders-0", [[0, 0]])
    assert segment["before"] != segment["after"]
    assert directory["overwritten_bytes"] > 400
    assert certificate["not_reached"]
    assert ALICE.decode() not in json.dumps(certificate)
    assert problem_of_document("erase-certificate", certificate) is None


def test_before_it_is_finished_an_undo_brings_everything_back(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", (ALICE, b"v"))
    before = contents_of(root)
    assert erase(root) == 1

    assert run("undo", root).exit_status == 0

    assert contents_of(root) == before
    assert finish(root).exit_status == 16


def test_the_undo_data_is_overwritten_before_it_is_deleted(root: Path, tmp_path: Path) -> None:
    """Look at the blocks through an open file, which outlives its name."""
    kept = [path.open("rb") for path in root.glob(".kdump-*-old-*")]
    listed = (root / FILE_NAME).open("rb")

    assert finish(root).exit_status == 0

    for each in (*kept, listed):
        with each:
            assert not any(each.read())


Change = Callable[[Path], None]


def keep_a_leftover(root: Path) -> None:
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(batch([record(0, ALICE)]))


def keep_a_compressed_leftover(root: Path) -> None:
    log = batch([record(0, ALICE, bytes(500))], codec=Codec.GZIP)
    assert ALICE not in log
    (root / "orders-0" / f"{0:020d}.log.cleaned").write_bytes(log)


def keep_a_segment_that_is_not_swapped_in(root: Path) -> None:
    log = batch([record(0, ALICE, bytes(500))], codec=Codec.ZSTD)
    (root / "orders-0" / f"{0:020d}.log.swap").write_bytes(log)


def keep_a_message_of_an_old_format(root: Path) -> None:
    log = wrapper([message(0, ALICE, b"v" * 99, magic=0)], Codec.SNAPPY, offset=0, magic=0)
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(log)


def keep_a_damaged_leftover(root: Path) -> None:
    log = bytearray(batch([record(0, ALICE, b"v" * 500)], codec=Codec.GZIP))
    log[-1] ^= 1
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(log)


def keep_a_stray_partition(root: Path) -> None:
    folder = root / f"orders-0.{'a' * 32}-stray"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(batch([record(0, ALICE)], codec=Codec.LZ4))


def keep_it_in_a_file_of_anybody(root: Path) -> None:
    (root / "notes").write_bytes(b"x" * (1 << 20) + ALICE)


def keep_a_copy_of_the_list(root: Path) -> None:
    shutil.copy(root / FILE_NAME, root / "kdump-erased.json.old")


def keep_it_across_two_reads(root: Path) -> None:
    (root / "notes").write_bytes(b"x" * ((1 << 20) - 5) + ALICE)


def keep_it_in_another_topic(root: Path) -> None:
    folder = root / "orders2-0"
    shutil.copytree(root / "orders-0", folder)
    (folder / f"{0:020d}.log").write_bytes(batch([record(0, ALICE), record(11)]))


def keep_it_in_a_value(root: Path) -> None:
    folder = root / "orders2-0"
    shutil.copytree(root / "orders-0", folder)
    content = batch([record(0, b"k", b'{"by":"' + ALICE + b'"}'), record(11)], codec=Codec.SNAPPY)
    (folder / f"{0:020d}.log").write_bytes(content)


def keep_it_in_a_header(root: Path) -> None:
    folder = root / "orders2-0"
    shutil.copytree(root / "orders-0", folder)
    content = batch([record(0, b"k", b"v", [(b"by", ALICE)]), record(11)])
    (folder / f"{0:020d}.log").write_bytes(content)


def keep_it_in_undo_data_of_another_run(root: Path) -> None:
    (root / ".kdump-7-old-3").write_bytes(batch([record(0, ALICE)], codec=Codec.ZSTD))
    (root / ".kdump-7.applied").write_bytes(b"{}")


def keep_a_piece_of_a_batch_in_quarantine(root: Path) -> None:
    content = batch([record(0, ALICE, b"v" * 500)], codec=Codec.GZIP)[40:]
    (root / "orders-0" / f"damaged-{0:020d}.log-40-90").write_bytes(content)


def keep_a_compressed_backup(root: Path) -> None:
    (root / "backup.gz").write_bytes(gzip.compress(ALICE * 9))


def keep_what_cannot_be_decoded(root: Path) -> None:
    content = bytearray(batch([record(0, b"k", b"v" * 900)], codec=Codec.ZSTD))
    content[70:90] = bytes(20)
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(content)


def keep_a_segment_called(name: str, root: Path) -> None:
    log = batch([record(0, ALICE, bytes(500))], codec=Codec.GZIP)
    assert ALICE not in log
    (root / "orders-0" / name).write_bytes(log)


def keep_a_batch_inside_an_index(root: Path) -> None:
    log = wrapper([message(0, ALICE, b"v" * 99, magic=1)], Codec.GZIP, offset=0, magic=1)
    assert ALICE not in log
    index = (root / "orders-0" / f"{12:020d}.index").read_bytes()
    content = index + bytes(3 << 20) + log + bytes(3 << 20)
    (root / "orders-0" / f"{99:020d}.index").write_bytes(content)


@pytest.mark.parametrize(
    "change",
    [
        functools.partial(keep_a_segment_called, f"{99:020d}.index"),
        functools.partial(keep_a_segment_called, f"{99:020d}.timeindex"),
        functools.partial(keep_a_segment_called, f"{99:020d}.txnindex"),
        functools.partial(keep_a_segment_called, f"{99:020d}.snapshot"),
        functools.partial(keep_a_segment_called, f"{99:020d}.index.deleted"),
        keep_a_batch_inside_an_index,
        keep_a_leftover,
        keep_a_compressed_leftover,
        keep_a_segment_that_is_not_swapped_in,
        keep_a_message_of_an_old_format,
        keep_a_damaged_leftover,
        keep_a_stray_partition,
        keep_it_in_a_file_of_anybody,
        keep_a_copy_of_the_list,
        keep_it_across_two_reads,
        keep_it_in_another_topic,
        keep_it_in_a_value,
        keep_it_in_a_header,
        keep_it_in_undo_data_of_another_run,
        keep_a_piece_of_a_batch_in_quarantine,
        keep_a_compressed_backup,
        keep_what_cannot_be_decoded,
    ],
)
def test_whatever_is_left_is_named_and_nothing_is_destroyed(root: Path, change: Change) -> None:
    before_change = set(contents_of(root))
    change(root)
    before = contents_of(root)

    outcome = finish(root, "--output=jsonl")

    assert outcome.exit_status == 4, outcome
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    found = {row["file"] for row in of_type(rows, "remains")}
    assert found
    assert found <= set(before) - before_change
    assert not (root.parent / "erased.json").exists()
    assert contents_of(root) == before
    assert ALICE not in outcome.stdout


@pytest.mark.parametrize(
    "records",
    [
        [(b"alice-47110", b"v"), (b"malice-4711", b"v")],
        [(b"alice-471", b"alice-47112"), (b"bob", b"malice-4711 and alice-4711x")],
        [(None, b"v"), (b"", b"")],
    ],
    ids=["other keys", "other words", "no keys"],
)
def test_other_people_are_no_reason_to_refuse(
    tmp_path: Path, records: list[tuple[bytes | None, bytes]]
) -> None:
    root = write(tmp_path / "logs", (ALICE, b"v"), *records)
    assert erase(root) == 1

    assert finish(root).exit_status == 0


def test_possible_places_are_named_and_certified(tmp_path: Path) -> None:
    """In Avro, two strings of 36 bytes are text, in which an H is the size of each."""
    uuid = b"1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    root = write(tmp_path / "logs", (uuid, b"v"), (b"H" + uuid[::-1] + b"H" + uuid, b"v"))
    assert run("erase", "--topic=orders", "--key", uuid.decode(), "--yes", root).exit_status == 1

    outcome = finish(root, "--output=jsonl")

    assert outcome.exit_status == 4
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    (row,) = of_type(rows, "remains")
    assert (row["possible"], row["mentions"], row["offsets"]) == (1, 0, [1])
    (end,) = of_type(rows, "certificate")
    assert (end["possible_places"], end["file"]) == (1, str(tmp_path / "erased.json"))
    certificate = certificate_of(root)
    assert certificate["possible_places"] == 1
    assert any("1 possible place" in each for each in certificate["not_reached"])
    assert problem_of_document("erase-certificate", certificate) is None
    again = verify(root, f"--key={uuid.decode()}", "--output=jsonl")
    assert again.exit_status == 4
    (end,) = of_type([json.loads(line) for line in again.stdout.splitlines()], "certificate")
    assert end["possible_places"] == 1


def test_an_index_that_another_run_has_put_aside_is_no_reason_to_refuse(root: Path) -> None:
    index = root / "orders-0" / f"{12:020d}.index"
    index.write_bytes(bytes(range(1, 17)))
    assert run("rebuild-index", "--undo", root).exit_status == 1
    assert any(bytes(range(1, 17)) == each for each in contents_of(root).values())

    assert finish(root).exit_status == 0


def test_a_preview_searches_and_destroys_nothing(root: Path) -> None:
    before = tree_of(root)

    assert finish(root, "--dry-run").exit_status == 0

    assert tree_of(root) == before
    assert not (root.parent / "erased.json").exists()


def test_undo_data_with_a_name_elsewhere_is_refused(root: Path) -> None:
    (old, *_) = sorted(root.glob(".kdump-*-old-*"))
    os.link(old, root.parent / "backup")
    before = contents_of(root)

    outcome = finish(root)

    assert outcome.exit_status == 8
    assert b"hard link" in outcome.stderr
    assert contents_of(root) == before


@pytest.mark.slow
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_leaves_no_certificate_or_a_true_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    original = write(tmp_path / "original", (ALICE, b"her value"))
    assert erase(original) == 1
    certificate = tmp_path / "erased.json"
    at = 0
    while True:
        root = shutil.copytree(original, tmp_path / f"logs-{at}")
        attic = tmp_path / f"attic-{at}"
        attic.mkdir()
        failing = VolatileFiles(root, attic, fail_at=at, failure=failure)
        with monkeypatch.context() as context:
            context.setattr(Finishing.__init__, "__defaults__", (failing,))
            status = finish(root).exit_status

        if status == 0:
            break
        assert status in (8, 9)
        assert not certificate.exists()
        assert finish(root, f"--key={ALICE.decode()}").exit_status == 0, at
        assert not any(ALICE in each for each in contents_of(root).values())
        certificate.unlink()
        at += 1
    assert at > 5


def test_a_second_run_at_the_same_time_is_refused(root: Path) -> None:
    before = contents_of(root)
    with hold_locks([root]):
        assert finish(root).exit_status == 8

    assert contents_of(root) == before
    assert not (root.parent / "erased.json").exists()


def test_a_certificate_that_exists_is_not_replaced(root: Path) -> None:
    (root.parent / "erased.json").write_bytes(b"mine")
    before = contents_of(root)

    assert finish(root).exit_status == 16

    assert contents_of(root) == before
    assert (root.parent / "erased.json").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "options",
    [
        ("--finish",),
        ("--certificate=c",),
        ("--finish", "--certificate=c", "--topic=orders"),
        ("--finish", "--certificate=c", "--no-undo"),
        ("--verify=erased.json", "--finish"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    root: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    (root.parent / "erased.json").write_bytes(b"{}")

    assert run("erase", *options, root).exit_status == 16


@pytest.fixture
def keyless(tmp_path: Path) -> Path:
    """Return a directory in which the record at offset 1, which has no key, was erased."""
    root = write(tmp_path / "logs", (b"bob", b"v"), (None, b"her value"))
    (tmp_path / "offsets.txt").write_text("orders-0 1\n")
    shutil.copytree(root, tmp_path / "backup")
    args = ("--topic=orders", "--offsets", tmp_path / "offsets.txt", "--yes")
    assert run("erase", *args, root).exit_status == 1
    return root


def restored(root: Path, folder: str) -> None:
    shutil.copytree(root.parent / "backup" / "orders-0", root / folder)


def bring_back_a_segment(root: Path) -> None:
    name = f"orders-0/{0:020d}.log"
    shutil.copy(root.parent / "backup" / name, root / f"{name}.deleted")


def bring_back_an_old_message(root: Path) -> None:
    log = message(1, None, b"her value", magic=1, timestamp=1)
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(log)


@pytest.mark.parametrize(
    "change",
    [
        functools.partial(restored, folder=f"orders-0.{'a' * 32}-stray"),
        functools.partial(restored, folder=f"orders-0.{'b' * 32}-delete"),
        functools.partial(restored, folder=f"orders-0.{'c' * 32}-future"),
        functools.partial(restored, folder="old/orders-0"),
        bring_back_a_segment,
        bring_back_an_old_message,
    ],
)
def test_a_record_without_a_key_is_found_at_its_offset(keyless: Path, change: Change) -> None:
    change(keyless)

    outcome = finish(keyless, "--output=jsonl")

    assert outcome.exit_status == 4, outcome
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    (row,) = of_type(rows, "remains")
    assert (row["records"], row["offsets"]) == (1, [1])
    assert not (keyless.parent / "erased.json").exists()


@pytest.mark.parametrize("change", [bring_back_a_segment, bring_back_an_old_message])
def test_a_certificate_finds_a_record_that_came_back_at_its_offset(
    keyless: Path, change: Change
) -> None:
    assert finish(keyless).exit_status == 0
    assert verify(keyless).exit_status == 0
    change(keyless)

    assert verify(keyless).exit_status == 4


def test_a_replica_in_which_nothing_was_erased_is_found(keyless: Path) -> None:
    assert finish(keyless, keyless.parent / "backup").exit_status == 4


def test_undo_data_of_another_run_is_searched_for_offsets(keyless: Path) -> None:
    log = keyless / "orders-0" / f"{0:020d}.log"
    damaged = bytearray((keyless.parent / "backup" / "orders-0" / log.name).read_bytes())
    damaged[record_batch.CRC_START] ^= 1
    log.write_bytes(damaged)
    (keyless / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (keyless / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    assert run("recover", "--undo", keyless).exit_status & 1

    outcome = finish(keyless, "--output=jsonl")

    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert any(row["undo_of"] and row["records"] for row in of_type(rows, "remains"))


def test_a_topic_that_was_created_again_has_other_offsets(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", (b"bob", b"v"), (None, b"her value"))
    ids = [f"version: 0\ntopic_id: {each * 21}A" for each in "XY"]
    metadata = root / "orders-0" / names.PARTITION_METADATA
    metadata.write_text(ids[0])
    (tmp_path / "offsets.txt").write_text("orders-0 1\n")
    args = ("--topic=orders", "--offsets", tmp_path / "offsets.txt", "--yes")
    assert run("erase", *args, root).exit_status == 1
    again = batch([record(0), record(1, None, b"another")])
    folder = root / "again" / "orders-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(again)
    (folder / names.PARTITION_METADATA).write_text(ids[0])
    assert finish(root).exit_status == 4
    (folder / names.PARTITION_METADATA).write_text(ids[1])

    assert finish(root).exit_status == 0
    assert certificate_of(root)["log_directories"][0]["runs"][0]["partitions"][0]["topic_id"]
    assert verify(root).exit_status == 0


def test_masked_records_are_at_their_offsets(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", (ALICE, b"v"))
    assert erase(root, "--mask") == 1

    assert finish(root).exit_status == 0
    assert verify(root).exit_status == 0


def test_a_file_that_is_no_list_is_refused(root: Path) -> None:
    (root / FILE_NAME).write_bytes(b'{"format":"kdump-erased","version":1,"runs":[{}]}')

    outcome = finish(root)

    assert outcome.exit_status == 8
    assert b"is not the list" in outcome.stderr


def verify(root: Path, *options: str) -> Outcome:
    return run("erase", "--verify", root.parent / "erased.json", *options, root)


def test_a_certificate_can_be_verified_without_the_keys_and_with_them(root: Path) -> None:
    assert finish(root).exit_status == 0

    assert verify(root).exit_status == 0
    assert verify(root, f"--key={ALICE.decode()}").exit_status == 0
    assert verify(root, "--key=somebody").exit_status == 4


@pytest.mark.parametrize("codec", Codec)
def test_a_record_that_came_back_is_found_by_its_hash(root: Path, codec: Codec) -> None:
    assert finish(root).exit_status == 0
    log = batch([record(0, b"x"), record(7, ALICE)], codec=codec)
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(log)

    outcome = verify(root, "--output=jsonl")

    assert outcome.exit_status == 4
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    (row,) = of_type(rows, "remains")
    assert (row["file"], row["offsets"]) == (f"orders-0/{0:020d}.log.deleted", [7])


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("damaged_byte", [-2, -4])
def test_what_may_hide_a_record_is_found_without_the_keys(
    root: Path, is_old: bool, damaged_byte: int
) -> None:
    """In the key, or, in the old format, in the size of the value."""
    assert finish(root).exit_status == 0
    log = bytearray(message(7, ALICE, b"v") if is_old else batch([record(7, ALICE, b"v")]))
    log[damaged_byte] ^= 64
    (root / "orders-0" / f"{0:020d}.log.deleted").write_bytes(log)

    outcome = verify(root, "--output=jsonl")

    assert outcome.exit_status == 4
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    (row,) = of_type(rows, "remains")
    assert row["unreadable_batches"] == 1


def test_what_is_no_certificate_is_refused(root: Path) -> None:
    (root.parent / "erased.json").write_bytes(b"{}")

    assert verify(root).exit_status == 8


def test_several_erasures_are_finished_at_once(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", (ALICE, b"v"), (b"carol-1", b"v"))
    assert erase(root) == 1
    carol = ("--topic=orders", "--key=carol-1", "--yes")
    assert of_type(rows_of("erase", *carol, root), "summary")[0]["erased_records"] == 1

    assert finish(root).exit_status == 0

    (directory,) = certificate_of(root)["log_directories"]
    assert len(directory["runs"]) == 2
    assert len(certificate_of(root)["keys"]) == 2
    assert not any(b"carol" in each for each in contents_of(root).values())


def test_without_a_list_given_keys_are_searched_and_certified(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", (b"bob", b"v"))

    assert finish(root, "--key=nobody").exit_status == 0
    assert run("erase", "--verify", tmp_path / "erased.json", root).exit_status == 0
    (tmp_path / "erased.json").unlink()
    assert finish(root, "--key=bob").exit_status == 4
