"""``kdump erase``: which records go, what is refused, and what undo gives back."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import shutil
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.freeing import (
    fields_missing_from,
    lines_of,
    of_type,
    rows_of,
    run,
    verify,
    write_line,
)
from builders.in_process import Outcome
from builders.json_schemas import problem_of_document
from builders.log_directories import (
    offset_checkpoint,
    write_log_directory,
    write_partition,
)
from builders.message_sets import message, wrapper
from builders.read_records import all_records, data_records
from builders.trees import contents_of, tree_of
from builders.verified import END_OFFSET, LogModel
from builders.volatile_files import VolatileFiles
from kdump.apply import overwriting
from kdump.formats import names
from kdump.formats.compression import Codec
from kdump.jobs.erase import erase as erasing

ALICE, ALICES_TWIN = b"alice-4711", b"alice-47"


def keyed(first_offset: int, *keys: bytes | None, **fields: object) -> bytes:
    """Make a batch of records with these keys, with Alice in their values and headers."""
    rows = [record(first_offset + at, key, b"v") for at, key in enumerate(keys)]
    return batch(rows, **fields)  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a clean log directory of one partition: Alice has the records 1, 4, 5, 15 to 17."""
    model = LogModel()
    seven = {"producer_id": 7, "producer_epoch": 0}
    model.segments[0][0] = keyed(0, b"bob", ALICE, None)
    model.segments[0][1] = keyed(3, ALICES_TWIN, ALICE, ALICE, base_sequence=0, **seven)
    model.segments[12][1] = keyed(
        15, ALICE, ALICE, ALICE, base_sequence=6, partition_leader_epoch=1, **seven
    )
    return model.write(tmp_path / "logs").parent


def erase(root: Path, *options: str | Path, key: bytes | None = ALICE) -> Outcome:
    named = () if key is None else ("--key", key.decode())
    return run("erase", "--topic=orders", *named, "--yes", *options, root)


def offsets_in(root: Path, partition: str = "orders-0") -> list[int]:
    return [each.offset for each in data_records(all_records(root / partition))]


EVERY = [*range(11), *range(12, END_OFFSET)]
OTHERS = [offset for offset in EVERY if offset not in (1, 4, 5, 15, 16, 17)]


def test_exactly_the_records_of_a_key_go_and_the_directory_stays_clean(root: Path) -> None:
    untouched = {
        name: each
        for name, each in contents_of(root).items()
        if not name.endswith((".log", ".index", ".timeindex"))
    }

    assert erase(root, "--no-undo").exit_status == 1

    assert offsets_in(root) == OTHERS
    assert verify(root) == 0
    after = contents_of(root)
    assert {name: after[name] for name in untouched} == untouched
    assert erase(root).exit_status == 0


def test_a_preview_changes_nothing_and_says_what_a_run_does(root: Path) -> None:
    before = tree_of(root)

    previewed = rows_of("erase", "--dry-run", "--topic=orders", "--key", ALICE.decode(), root)
    assert tree_of(root) == before
    done = rows_of("erase", "--yes", "--topic=orders", "--key", ALICE.decode(), root)

    (before_row,), (row,) = of_type(previewed, "partition"), of_type(done, "partition")
    before_row["operations"] = row["operations"]
    assert before_row == row
    assert [each["base_offset"] for each in row["segments"]] == [0, 12]
    amount = {"erased_records": 6, "rewritten_batches": 3, "emptied_batches": 1}
    assert amount.items() <= row.items()


def test_undo_gives_every_byte_back(root: Path) -> None:
    before = contents_of(root)
    assert erase(root).exit_status == 1

    assert run("undo", root).exit_status == 0

    assert contents_of(root) == before


def test_neither_a_key_nor_a_value_is_printed(root: Path) -> None:
    for options in (("--dry-run", "-v"), ("--output=jsonl", "-v")):
        outcome = erase(root, *options)
        assert ALICE not in outcome.stdout + outcome.stderr
        assert b"bob" not in outcome.stdout


@pytest.mark.parametrize("command", [["--dry-run"], []], ids=["preview", "run"])
def test_the_manual_names_every_object(root: Path, command: list[str]) -> None:
    rows = rows_of("erase", *command, "--yes", "--topic=orders", "--key", ALICE.decode(), root)

    types = {row["type"] for row in rows} - {"header", "end"}
    assert not {"type", *types} - {"type"} - {"partition", "directory", "copy", "summary"}
    assert "copy" not in fields_missing_from("kdump-erase", [dict.fromkeys(types)])


@pytest.mark.parametrize(
    ("lines", "options", "gone"),
    [
        (b"alice-4711\n\nnobody\r\n", (), {1, 4, 5, 15, 16, 17}),
        (b"alice-47\r\n", (), {3}),
        (b"\xef\xbb\xbfalice-47\r\nnobody\r\n", (), {3}),
        (b"616c6963652d3437", ("--key-format=hex",), {3}),
        (b"YWxpY2UtNDc=\n", ("--key-format=base64",), {3}),
    ],
    ids=["text", "Windows", "Excel", "hex", "base64"],
)
def test_a_file_has_a_key_on_each_line(
    root: Path, tmp_path: Path, lines: bytes, options: tuple[str, ...], gone: set[int]
) -> None:
    (tmp_path / "ids.txt").write_bytes(lines)

    assert erase(root, "--keys-file", tmp_path / "ids.txt", *options, key=None).exit_status == 1

    assert set(EVERY) - set(offsets_in(root)) == gone


def test_a_prefix_names_every_key_that_begins_with_it(root: Path) -> None:
    assert erase(root, "--key-prefix=alice-47", key=None).exit_status == 1

    assert set(EVERY) - set(offsets_in(root)) == {1, 3, 4, 5, 15, 16, 17}


def test_an_offset_names_a_record_without_a_key_and_no_control_record(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "offsets").write_text(
        "\ufefforders-0 2\norders-0 11\norders-0 99\nothers-0 3\nothers-00 4\n"
    )

    outcome = erase(root, "--offsets", tmp_path / "offsets", key=None)

    assert outcome.exit_status == 1
    assert b"offsets: not among the selected partitions: others-0, others-00\n" in outcome.stderr

    assert set(EVERY) - set(offsets_in(root)) == {2}
    assert [each.offset for each in all_records(root / "orders-0") if each.is_control] == [11]


def test_masked_records_stay_without_what_they_say(root: Path, tmp_path: Path) -> None:
    before = contents_of(root)
    (tmp_path / "secret").write_bytes(b"s" * 16)
    options = ("--mask", "--mask-secret", tmp_path / "secret")
    rows = rows_of("erase", "--yes", "--topic=orders", "--key", ALICE.decode(), *options, root)

    (row,) = of_type(rows, "partition")
    assert (row["erased_records"], row["emptied_batches"]) == (6, 0)
    found = {each.offset: (each.key, each.value) for each in all_records(root / "orders-0")}
    assert offsets_in(root) == EVERY
    hashed = hmac.digest(b"s" * 16, ALICE, "sha256").hex().encode()
    assert {at for at, each in found.items() if each == (hashed, b"*")} == set(EVERY) - set(OTHERS)
    assert verify(root) == 0
    assert erase(root, *options).exit_status == 0
    assert run("undo", root).exit_status == 0
    after = contents_of(root)
    assert {name: after[name] for name in before} == before


def test_a_certificate_of_masked_records_says_so(root: Path, tmp_path: Path) -> None:
    assert erase(root, "--mask").exit_status == 1
    certificate = tmp_path / "erased.json"

    assert run("erase", "--finish", "--certificate", certificate, root).exit_status == 0

    document = json.loads(certificate.read_text())
    assert [run["is_masked"] for run in document["log_directories"][0]["runs"]] == [True]
    assert any("hashed keys of 6 masked records" in each for each in document["not_reached"])
    assert problem_of_document("erase-certificate", document) is None
    assert not any(ALICE in each for each in contents_of(root).values())


@pytest.mark.parametrize("change", ["nothing", "damage", "less"])
def test_replicas_that_differ_afterwards_are_named(change: str, root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(root, other)
    log = other / "orders-0" / f"{0:020d}.log"
    meta = other / names.META_PROPERTIES
    meta.write_bytes(meta.read_bytes().replace(b"node.id=7", b"node.id=8"))
    if change == "damage":
        log.write_bytes(log.read_bytes()[:-1] + b"!")
    if change == "less":
        options = ("--offsets", tmp_path / "offsets")
        (tmp_path / "offsets").write_text("orders-0 4\n")
        assert erase(other, *options, key=None).exit_status == 1
    words: list[str | Path] = ["--dry-run", "--topic=orders", "--key", ALICE.decode(), root, other]
    rows = of_type(rows_of("erase", *words), "difference")
    said = run("erase", *words).stdout.decode()

    expected = {"nothing": [], "damage": [6, None], "less": [6, 5]}[change]
    found = [
        None if each["left_because"] else each["erased_records"]
        for row in rows
        for each in row["replicas"]
    ]
    assert found == expected
    assert (f"orders-0: 6 records to erase in {root}, " in said) is bool(rows)
    assert (f"'kdump diff {root}/orders-0 {other}/orders-0' compares" in said) is bool(rows)
    assert "severe" not in said


def test_a_preview_of_masking_says_so(root: Path) -> None:
    outcome = run("erase", "--dry-run", "--mask", "--topic=orders", f"--key={ALICE.decode()}", root)

    assert b"6 of 18 records to mask" in outcome.stdout
    assert b"6 of 18 records would be masked, more than 10%" in outcome.stdout


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--mask", "--key-prefix=a"), b"mutually exclusive"),
        (("--mask", "--offsets={secret}"), b"mutually exclusive"),
        (("--mask-secret={secret}",), b"requires --mask"),
        (("--mask", "--mask-secret={secret}"), b"can be guessed"),
        (("--mask", f"--key={hashlib.sha256(ALICE).hexdigest()}"), b"hash of another"),
        (("--mask", "--finish", "--certificate=c"), b"--mask has no effect"),
    ],
)
def test_what_cannot_be_masked_is_refused(
    root: Path, tmp_path: Path, options: list[str], what: bytes
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"short")
    topic = () if "--finish" in options else ("--topic=orders",)
    words = (each.format(secret=secret) for each in options)

    outcome = run("erase", *topic, "--key", ALICE.decode(), *words, root)

    assert outcome.exit_status == 16
    assert what in outcome.stderr
    assert offsets_in(root) == EVERY


def test_other_topics_stay(root: Path) -> None:
    shutil.copytree(root / "orders-0", root / "orders2-0")
    write_line(root, names.RECOVERY_POINT_CHECKPOINT, ("orders2", 0), END_OFFSET)
    before = contents_of(root / "orders2-0")

    assert erase(root).exit_status == 1

    assert contents_of(root / "orders2-0") == before


def test_replicas_that_are_equal_stay_equal(root: Path, tmp_path: Path) -> None:
    other = shutil.copytree(root, tmp_path / "other")

    assert erase(root, "--no-undo", "--now=1800000000000").exit_status == 1
    assert erase(other, "--no-undo", "--now=1800000000000").exit_status == 1

    assert contents_of(other) == contents_of(root)


def test_a_large_share_has_to_be_confirmed(root: Path) -> None:
    before = tree_of(root)

    outcome = run("erase", "--topic=orders", "--key", ALICE.decode(), root)

    assert outcome.exit_status == 16
    assert b"6 of 18 records would be erased, more than 10%" in outcome.stderr
    assert contents_of(root).keys() - before.keys() <= {names.LOCK_FILE}
    assert offsets_in(root) == EVERY


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--topic=orders",), b"requires --key"),
        (("--key=a",), b"requires --topic"),
        (("--topic=orders", "--key-prefix="), b"empty prefix"),
        (("--topic=orders", "--key=xyz", "--key-format=hex"), b"not in --key-format hex"),
        (("--topic=nothing", "--key=a"), b"no partition"),
        (("--topic=__cluster_metadata", "--key=a"), b""),
    ],
)
def test_what_names_no_records_is_refused(root: Path, options: list[str], what: bytes) -> None:
    outcome = run("erase", *options, root)

    assert outcome.exit_status == 16
    assert what in outcome.stderr
    assert b"xyz" not in outcome.stderr


@pytest.mark.parametrize("content", [b"", b"\n\n", b"orders-0\n", b"orders-0 -1\n", b"a 1 2\n"])
def test_a_file_of_offsets_that_cannot_be_understood_is_refused(
    root: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "offsets").write_bytes(content)

    assert erase(root, "--offsets", tmp_path / "offsets", key=None).exit_status == 16


def test_a_directory_without_a_clean_shutdown_is_refused(root: Path) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()

    assert erase(root).exit_status == 4

    assert offsets_in(root) == EVERY


def test_a_partition_in_which_records_may_hide_stays_and_others_do_not(root: Path) -> None:
    shutil.copytree(root / "orders-0", root / "orders-1")
    shutil.copytree(root / "orders-0", root / "orders-2")
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(
        offset_checkpoint({("orders", number): END_OFFSET for number in range(3)})
    )
    log = root / "orders-0" / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[80] ^= 1
    log.write_bytes(damaged)
    (root / "orders-1" / f"{0:020d}.log.swap").write_bytes(b"")
    before = contents_of(root / "orders-0"), contents_of(root / "orders-1")

    outcome = erase(root)

    assert outcome.exit_status == 5
    assert b"orders-0: left unchanged: a batch is damaged" in outcome.stdout
    assert b"orders-1: left unchanged: it has leftover files" in outcome.stdout
    assert (contents_of(root / "orders-0"), contents_of(root / "orders-1")) == before
    assert offsets_in(root, "orders-2") == OTHERS


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "preview"])
def test_nothing_counts_of_a_partition_that_cannot_be_rewritten(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    far = 2**31  # no index of a segment at 0 has it
    root = write_log_directory(tmp_path, recovery_points={("orders", 0): far + 1})
    log = batch([record(0, ALICE)]) + batch([record(far, ALICE)])
    write_partition(root / "orders-0", {0: log})

    args = ("erase", "--yes", "--topic=orders", "--key", ALICE.decode(), root)
    rows = rows_of(*args, *options)

    assert run(*args, *options).exit_status == 4
    (partition,), (summary,) = of_type(rows, "partition"), of_type(rows, "summary")
    assert "does not fit the segment" in partition["left_because"]
    assert (partition["erased_records"], partition["segments"]) == (0, [])
    assert summary["erased_records"] == 0
    assert offsets_in(root) == [0, far]


def test_copies_that_remain_are_named(root: Path) -> None:
    shutil.copytree(root / "orders-0", root / f"orders-1.{'a' * 32}-delete")
    (root / "orders-0" / f"{12:020d}.log.deleted").write_bytes(ALICE)
    (root / "orders-0" / f"{0:020d}.log.cleaned").write_bytes(ALICE)

    args = ("erase", "--yes", "--topic=orders", "--key", ALICE.decode(), root)
    previewed, rows = rows_of(*args, "--dry-run"), rows_of(*args)

    copies = [(row["kind"], row["name"]) for row in of_type(rows, "copy")]
    assert copies[2:] == [(row["kind"], row["name"]) for row in of_type(previewed, "copy")]
    assert copies == [
        ("undo", "1"),
        ("list", "kdump-erased.json"),
        ("directory", f"orders-1.{'a' * 32}-delete"),
        ("leftover", f"orders-0/{12:020d}.log.deleted"),
    ]


@pytest.mark.parametrize(("count", "is_verbose"), [(3, False), (40, True), (40, False)])
def test_of_many_leftover_files_only_the_largest_are_named(
    root: Path, count: int, is_verbose: bool
) -> None:
    for number in range(count):
        for kind in ("log", "index"):
            name = f"{100 + number:020d}.{kind}.deleted"
            (root / "orders-0" / name).write_bytes(bytes(1024 * number))
    args = ("--dry-run", *(["--verbose"] if is_verbose else []))

    lines = erase(root, *args).stdout.decode().splitlines()

    found = [each for each in lines if "not searched" in each]
    if is_verbose or count == 3:
        what = f"{root}/orders-0/{100:020d}.log.deleted: not searched; may hold the records, too"
        assert (len(found), found[0]) == (count, what)
    else:
        names = [f"orders-0/{n + 100:020d}.log.deleted ({n}.0 KiB)" for n in (39, 38, 37)]
        (line,) = found
        assert line == (
            f"{root}: 40 leftover files, 780.0 KiB, not searched; they may hold the records, too;"
            f" the largest: {', '.join(names)} (--verbose lists each)"
        )
    rows = rows_of("erase", "--dry-run", "--topic=orders", "--yes", "--key=x", root)
    assert len(of_type(rows, "copy")) == count


def test_unfinished_files_that_no_undo_has_are_counted_before_and_after(root: Path) -> None:
    (root / "orders-0" / f"{0:020d}.log.cleaned").write_bytes(ALICE)
    what = "  1 unfinished file (.cleaned) of an interrupted change"

    previewed = erase(root, "--dry-run").stdout.decode()
    (row,) = of_type(
        rows_of("erase", "--yes", "--topic=orders", "--key=" + ALICE.decode(), root), "partition"
    )

    assert f"{what} to overwrite and delete; no undo has it" in previewed
    assert row["deleted_leftovers"] == 1
    assert not list(root.rglob("*.cleaned"))


def test_a_copy_whose_name_kafka_has_cut_is_named(root: Path) -> None:
    topic = "t" * 230
    suffix = f"-1.{'a' * 32}-delete"
    cut = f"{topic[: 255 - len(suffix)]}{suffix}"
    (root / "orders-0").rename(root / f"{topic}-0")
    shutil.copytree(root / f"{topic}-0", root / cut)
    shutil.copytree(root / f"{topic}-0", root / cut.replace("t" * 9, "u" * 9, 1))
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(
        offset_checkpoint({(topic, 0): END_OFFSET})
    )

    for selected in (f"--topic={topic}", f"--partition={topic}-*", f"--topic={topic[:220]}*"):
        args = ("erase", "--dry-run", selected, "--key", ALICE.decode(), root)
        copies = [(row["kind"], row["name"]) for row in of_type(rows_of(*args), "copy")]
        assert copies == [("directory", cut)]


def test_a_full_disk_leaves_everything_as_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = contents_of(root)
    at = 0
    while True:
        attic = tmp_path / f"attic-{at}"
        attic.mkdir()
        full = VolatileFiles(root, attic, fail_at=at, failure=errno.ENOSPC)
        monkeypatch.setattr(erasing.ErasedLogs.__init__, "__defaults__", (full,))
        outcome = erase(root)
        if outcome.exit_status == 1:
            break
        assert outcome.exit_status == 8, outcome
        after = contents_of(root)
        after.pop(names.LOCK_FILE, None)
        assert after == before, at
        at += 1
    assert at > 3


def test_a_disk_that_fails_before_old_segments_are_overwritten_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as context:
        context.setattr(overwriting, "overwrite", fail)
        outcome = erase(root, "--no-undo")

    assert outcome.exit_status == 9
    assert b"Input/output error; all changes are made" in outcome.stderr
    assert offsets_in(root) == OTHERS
    certificate = root.parent / "erased.json"
    assert run("erase", "--finish", "--certificate", certificate, root).exit_status == 0
    assert not list(root.glob(".kdump-*"))


def test_a_second_run_at_the_same_time_is_refused(root: Path) -> None:
    from kdump.apply.lock import hold_locks

    with hold_locks([root]):
        assert erase(root).exit_status == 8


def test_records_above_the_high_watermark_go_like_others(root: Path) -> None:
    write_line(root, names.REPLICATION_OFFSET_CHECKPOINT, ("orders", 0), 4)

    assert erase(root).exit_status == 1

    assert offsets_in(root) == OTHERS
    assert lines_of(root, names.REPLICATION_OFFSET_CHECKPOINT) == {"orders-0": 4}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_messages_of_old_formats_go_from_their_wrappers(
    tmp_path: Path, codec: Codec, magic: int
) -> None:
    keys = [b"bob", ALICE, None]
    first = 0 if magic else 3
    entries = [message(first + at, key, b"v" * 99, magic=magic) for at, key in enumerate(keys)]
    model = LogModel()
    model.segments[0][:2] = [
        *(message(at, key, magic=magic) for at, key in enumerate(keys)),
        wrapper(entries, codec, offset=5, magic=magic),
    ]
    root = model.write(tmp_path / "logs").parent

    assert erase(root).exit_status == 1

    assert offsets_in(root) == [offset for offset in EVERY if offset not in (1, 4)]
    certificate = tmp_path / "erased.json"
    assert run("erase", "--finish", "--certificate", certificate, root).exit_status == 0


def test_headers_and_values_of_the_others_stay(tmp_path: Path) -> None:
    model = LogModel()
    rows = [
        record(0, ALICE, b"gone"),
        record(1, b"bob", ALICE, [(b"owner", ALICE), (ALICE, None)]),
        record(2, b"", b""),
    ]
    model.segments[0][0] = batch(rows)
    root = model.write(tmp_path / "logs").parent

    assert erase(root).exit_status == 1

    first, second = all_records(root / "orders-0")[:2]
    assert (first.offset, first.key, first.value) == (1, b"bob", ALICE)
    assert (second.offset, second.key, second.value) == (2, b"", b"")
    log = (root / "orders-0" / f"{0:020d}.log").read_bytes()
    assert log.count(ALICE) == log.count(b"owner") + 2
