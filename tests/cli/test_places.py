"""Log directories in other places: commands that read answer the same, those that write refuse."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Final, Literal

import pytest

from builders.image_plans import write_small_plan
from builders.in_process import Outcome, run_kdump
from builders.json_commands import leaf_commands
from builders.log_directories import write_log_directory
from builders.packed import pack
from builders.source_tables import table_of
from builders.trees import contents_of
from kdump.api import open_log_dir
from kdump.errors import ExitStatus, KdumpError
from kdump.jobs.table_rows.table_reader import log_incomplete_archives, open_table
from kdump.storage import spooled_archive
from kdump.storage.store_connection import StoreConnection
from kdump.tables.kafka_log.pushed_filters import PushedFilters

LOG: Final = "d1/UPPER-Case.0-1-0/00000000000000000000.log"
READING: Final = (
    "checkpoint show --output jsonl D1",
    "copy --output jsonl --topic grown D1 OUT",
    "diff --output jsonl D1 D2",
    "dump-segment --print-data-log LOG",
    "dump-segment --output jsonl LOG",
    "dump-segment --output table --files LOG,LOG",
    "export --format jsonl --output jsonl --topic [g-z]* --out OUT D1",
    "grep --output jsonl --topic [a-z]* k D1 D2",
    "groups --output jsonl --members D1 D2",
    "identity --output jsonl D1 D2",
    "info --output jsonl --deep D1",
    "lookup --output jsonl --timestamp max D1",
    "ls --output jsonl D1 D2",
    "metadata collect --output jsonl --out OUT D1 D2",
    "metadata diff --output jsonl --from 0 D1",
    "metadata history --output jsonl D1",
    "metadata show --output jsonl D1",
    "quorum show --output jsonl D1",
    "report --topic [g-z]* --out OUT D1",
    "txns --output jsonl D1",
    "verify --output jsonl D1 D2",
    "verify --output jsonl LOG",
    "verify D1",
)
"""LOG, D1 and D2 are in the place; OUT is a new file or directory."""
WRITING: Final = (
    "backup check D1",
    "backup create OUT D1",
    "backup list D1",
    "backup prune --keep-last 1 D1",
    "backup restore --into OUT D1",
    "checkpoint rebuild D1",
    "checkpoint set D1 recovery-point orders-0=0",
    "compact --topic * --config cleanup.policy=compact D1",
    "delete-records --partition orders-0 --before 1 --config cleanup.policy=delete D1",
    "erase --topic orders --key-prefix k D1",
    "identity --repair --cluster-id a --node-id 1 D1",
    "metadata apply PLAN D1",
    "metadata rebuild --accept-loss --controller 9@h:9093 --into D1 D2",
    "move --drain D1 --to D2",
    "quorum reset --without-this-node --listener-name C --voter 1@h:1 D1",
    "rebuild-index D1",
    "recover D1",
    "resolve D1",
    "retain --topic * --config retention.ms=1 --config cleanup.policy=delete D1",
    "rewind --to 2020-01-01 D1",
    "snapshot rebuild D1",
    "transplant D1/UPPER-Case.0-1-0 --into D2 --leader-epoch 0",
    "undelete D1",
    "undo D1",
    "verify --repair D1",
)
ELSEWHERE: Final = {"completion", "explain", "metadata plan", "query", "serve"}
"""Commands that read no log directory, and ``query`` and ``serve``, which have their own tests."""


def test_every_command_has_a_line() -> None:
    lines = {
        name
        for name in leaf_commands()
        if any(f"{line} ".startswith(f"{name} ") for line in (*READING, *WRITING))
    }
    assert set(leaf_commands()) - lines == ELSEWHERE


@pytest.fixture(scope="module")
def archive(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return pack(fixtures / "out" / "clean", tmp_path_factory.mktemp("packed") / "clean.tar")


@pytest.fixture(scope="module")
def directory(archive: str, fixtures: Path) -> str:
    """The same on disk; the path is as long as the archive's, because paths are in files."""
    path = Path(archive.replace("clean.tar!", "clean_dir!"))
    path.symlink_to(fixtures / "out" / "clean")
    return str(path)


@pytest.fixture(scope="module")
def snapshot(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same in a repository, up to the path of the directory around it."""
    folder = tmp_path_factory.mktemp("backups")
    log_dirs = [str(fixtures / "out" / "clean" / name) for name in ("d1", "d2")]
    made = run_kdump(["backup", "create", "--output", "jsonl", "repo", *log_dirs], folder)
    name = json.loads(made.stdout.splitlines()[-2])["snapshot"]
    return f"{folder}/repo!{name}{Path(log_dirs[0]).resolve().parent}"


@pytest.fixture(scope="module")
def directory_of_the_snapshot(snapshot: str, fixtures: Path) -> str:
    """The same on disk, under a path that is as long."""
    folder = Path(snapshot.partition("/repo!")[0])
    path = folder
    while len(f"{path}/") < len(snapshot):
        path = path / ("d" * min(200, len(snapshot) - len(f"{path}/")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(fixtures / "out" / "clean")
    return str(path)


def answer(line: str, base: str, folder: Path) -> tuple[int, str]:
    """Run a command line on what is at ``base``; its status, and all that it wrote."""
    places = {"LOG": LOG, "D1": "d1", "D2": "d2"}
    folder.mkdir()
    if "PLAN" in line:
        write_small_plan(folder / "PLAN")
    words = [
        re.sub("LOG|D1|D2", lambda found: f"{base}/{places[found[0]]}", word)
        for word in line.replace("OUT", "out").split()
    ]
    outcome = run_kdump([*words, *(["--now", "2026-11-22"] if "report" in line else [])], folder)
    files = (each for each in sorted(folder.rglob("*")) if each.is_file())
    made = [each.read_bytes() for each in files if each.name not in ("PLAN", "_manifest.json")]
    said = b"".join((outcome.stdout, outcome.stderr, *made)).decode(errors="backslashreplace")
    # Times of two runs differ, and rates; a disk knows holes that a plain tar has no more.
    said = re.sub(
        r'"(seconds|created_ms|free_bytes|needed_bytes)": ?[\d.]+|[\d.]+ s\b|[\d.]+ [kKMG]?i?B/s',
        "",
        said,
    )
    return outcome.exit_status, said.replace(base, "BASE")


@pytest.mark.parametrize("line", READING)
def test_an_archive_gives_what_its_directory_gives(
    directory: str, archive: str, tmp_path: Path, line: str
) -> None:
    expected = answer(line, directory, tmp_path / "1")
    assert answer(line, archive, tmp_path / "2") == expected
    assert expected[1]


@pytest.mark.parametrize("line", READING)
def test_a_snapshot_gives_what_its_directory_gives(
    directory_of_the_snapshot: str, snapshot: str, tmp_path: Path, line: str
) -> None:
    expected = answer(line, directory_of_the_snapshot, tmp_path / "1")
    assert answer(line, snapshot, tmp_path / "2") == expected
    assert expected[1]


@pytest.mark.parametrize("line", WRITING)
def test_commands_that_write_refuse_a_snapshot(snapshot: str, tmp_path: Path, line: str) -> None:
    status, said = answer(line, snapshot, tmp_path / "1")
    assert status & (ExitStatus.OPERATIONAL_ERROR | ExitStatus.USAGE)
    assert "is not on a local disk; copy it to one first: kdump copy '" in said


@pytest.mark.parametrize("line", WRITING)
def test_commands_that_write_refuse_an_archive(archive: str, tmp_path: Path, line: str) -> None:
    status, said = answer(line, archive, tmp_path / "1")
    assert status & (ExitStatus.OPERATIONAL_ERROR | ExitStatus.USAGE)
    assert "is not on a local disk; copy it to one first: kdump copy '" in said


REPOSITORY: Final = re.compile(r"backup (check|list|prune|restore) ")
"""Lines in which D1 is a repository, which can be in a bucket of S3."""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (line, place)
        for place in ("s3://key:secret@bucket/clean", "a.tar.gz!", "hdfs://h/clean")
        for line in WRITING
        if not (place.startswith("s3:") and REPOSITORY.match(line))
    ],
)
def test_what_cannot_be_written_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, place: str
) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("nothing is to be asked or unpacked")

    monkeypatch.setattr(StoreConnection, "__init__", opened)
    monkeypatch.setattr(spooled_archive, "spooled", opened)
    status, said = answer(line, place, tmp_path / "1")
    assert status & (ExitStatus.OPERATIONAL_ERROR | ExitStatus.USAGE)
    if REPOSITORY.match(line) and "://" in place:
        assert "a repository is a directory on a local disk, or in a bucket of S3 (s3://)" in said
    else:
        assert "is not on a local disk; copy it to one first: kdump " in said
    assert "secret" not in said


@pytest.mark.parametrize("name", ["d1", "data/d1", "-d 1", "it's\n50%", "\u202e$HOME!/x"])
@pytest.mark.parametrize("packed", ["a.tar", "a b.tar.gz"])
def test_the_command_in_a_refusal_can_be_pasted(tmp_path: Path, packed: str, name: str) -> None:
    write_log_directory(tmp_path / "d1", clean=True)
    mode: Literal["w", "w:gz"] = "w:gz" if packed.endswith("gz") else "w"
    with tarfile.open(tmp_path / packed, mode) as archive:
        archive.add(tmp_path / "d1", name)
    refused = run_kdump(["recover", f"{packed}!/{name}"], tmp_path)
    command = refused.stderr.decode().removesuffix("\n").partition("first: kdump ")[2]
    split = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], stdout=subprocess.PIPE)
    words = split.stdout.decode().split("\0")[:-1]
    (tmp_path / "new").mkdir()
    words = [each.replace(packed, f"../{packed}") for each in words]
    assert run_kdump(words, tmp_path / "new").exit_status == ExitStatus.SOUND
    assert contents_of(tmp_path / "new" / words[-1]) == contents_of(tmp_path / "d1")


def test_the_directory_for_unpacked_archives_is_in_the_command(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    outcome = run_kdump(["--spool", "a b", "verify", "--repair", "x.txz!/d1"], tmp_path)
    expected = b"first: kdump --spool 'a b' copy 'x.txz!/d1' d1\n"
    assert outcome.stderr.endswith(expected)


def test_the_data_source_reads_an_archive(directory: str, archive: str) -> None:
    local, packed = (
        table_of(Path(base), columns="topic,partition,offset,key,value")
        for base in (f"{directory}/d1", f"{archive}/d1")
    )
    assert local.num_rows > 1000
    assert packed == local


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
def test_a_query_reads_an_archive_that_is_named_from_here(directory: str, archive: str) -> None:
    # The workers of Spark have another current directory.
    tables = ("topics", "transactions", "group_offsets", "partitions", "findings", "records")
    counts = ", ".join(f"(SELECT count(*) FROM {name}) AS {name}" for name in tables)
    here = Path(archive).parent
    of_directory, of_archive = (
        run_kdump(["query", "--output", "jsonl", f"SELECT {counts}", f"{base}/d1"], here)
        for base in (directory, "clean.tar!")
    )
    assert of_archive.stdout == of_directory.stdout
    assert of_archive.exit_status == of_directory.exit_status
    assert 0 not in json.loads(of_directory.stdout.splitlines()[0]).values()


def test_the_data_source_and_the_library_say_that_an_archive_is_not_whole(
    archive: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Path(archive.rstrip("!")).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole.rstrip(b"\0")[: -len(whole) // 4])
    path = f"{tmp_path}/cut.tar!/d1"
    with pytest.raises(KdumpError, match=r"cut\.tar: "):
        table_of(Path(path))
    assert table_of(Path(path), mode="DROPMALFORMED").num_rows > 0
    assert any("may be missing" in each for each in open_log_dir(path).problems)
    for table in ("segments", "topics", "findings"):
        caplog.clear()
        options = {"path": path, "table": table}
        open_table(options).splits(PushedFilters())
        log_incomplete_archives(options)
        assert "cut.tar: " in caplog.text


def ls(archive: Path | str, folder: Path) -> Outcome:
    return run_kdump(["ls", str(archive)], folder)


def test_what_is_left_out_of_an_archive_is_said_and_in_the_status(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("d/orders-0/00000000000000000000.log", "d/meta.properties", "d/../x"):
            archive.addfile(tarfile.TarInfo(name))
    outcome = ls("a.tar!/d", tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    line = b"kdump: a.tar: d/../x: left out, because .. in it leads elsewhere\n"
    assert outcome.stderr.count(line) == 1
    assert b"orders" in outcome.stdout


@pytest.mark.parametrize(
    ("path", "status", "what"),
    [
        ("a.tar", ExitStatus.USAGE, "a.tar is an archive: name a directory in it"),
        ("a.tar!/x", ExitStatus.OPERATIONAL_ERROR, "a.tar!/x: No such file or directory"),
        ("b.tar!/x", ExitStatus.OPERATIONAL_ERROR, "b.tar: No such file or directory"),
        ("c.tar!/", ExitStatus.OPERATIONAL_ERROR, "c.tar: not a tar archive"),
    ],
)
def test_what_is_not_there_is_said(
    tmp_path: Path, path: str, status: ExitStatus, what: str
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("d/meta.properties"))
    (tmp_path / "c.tar").write_bytes(b"x" * 600)
    outcome = ls(path, tmp_path)
    assert outcome.exit_status == status
    assert what in outcome.stderr.decode()
    assert outcome.stderr.count(b"\n") == 1
