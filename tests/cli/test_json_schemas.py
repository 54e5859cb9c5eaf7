"""JSON output of every command is exactly what ``docs/schemas`` describes."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from builders.batches import batch, record
from builders.compactable_directories import NOW_MS, plain_directory
from builders.dead_clusters import disk, replica, write_collection
from builders.image_plans import write_small_plan
from builders.in_process import run_kdump
from builders.json_answers import all_objects
from builders.json_commands import json_commands
from builders.json_schemas import COMMON, FILES, documents, problem_of_answer, problems_of_objects
from builders.log_directories import TOPIC_ID_TEXT, write_log_directory
from builders.message_sets import message_07, wrapper_07
from builders.repair_cases import CASES
from builders.verified import with_body
from kdump.apply.journal_preview import Restored
from kdump.cli.output.write_report import interrupted_event
from kdump.jobs.writing.execution import Interrupted

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "json.md"
CONFIG: Final = (
    *("--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete"),
    *("--config", "remote.storage.enable=false"),
)
READING: Final = (
    "ls",
    "lookup --timestamp earliest",
    "groups --members",
    "info --deep",
    "identity",
    "identity --repair --cluster-id a --node-id 1 --dry-run",
    "checkpoint show",
    "txns",
    "verify --deep",
    "verify --repair --policy salvage --dry-run",
    "recover --dry-run",
    "recover --policy salvage --dry-run",
    "rebuild-index --dry-run",
    "snapshot rebuild --dry-run",
    "resolve --drop-deleted --dry-run",
    "checkpoint rebuild --dry-run",
    "undelete --dry-run",
    "checkpoint set --dry-run DIR recovery-point orders-0=0",
    f"retain --topic * --explain --dry-run {' '.join(CONFIG)}",
    f"delete-records --partition orders-0 --before 1 --dry-run {' '.join(CONFIG)}",
    "erase --topic orders --key-prefix k --dry-run",
    f"compact --topic * --force --dry-run {' '.join(CONFIG)}",
    f"compact --explain --dry-run {' '.join(CONFIG)}",
    "diff --records DIR COPY",
    "move --drain DIR --to COPY --dry-run",
    "copy DIR EMPTY",
    "backup create OUT DIR",
    "backup list REPOSITORY",
    "backup check REPOSITORY",
    "backup prune --keep-last 1 --keep-daily 7 REPOSITORY",
    "backup restore --into OUT REPOSITORY",
    "metadata show",
    "metadata history",
    "metadata diff --from 0",
    "metadata collect --out OUT",
    "quorum show",
    "quorum reset --dry-run --without-this-node --listener-name C --voter 1@h:1",
    "metadata plan --set cluster.id=c --controller 4001@h:9093 --out OUT COLLECTION",
    "metadata apply --dry-run PLAN DIR",
    f"transplant PARTITION --into TARGET --topic-id {TOPIC_ID_TEXT} --leader-epoch 0 --dry-run",
    "metadata rebuild --dry-run --accept-loss --controller 9@h:9093 --into EMPTY DIR",
    "rewind --to 2026-01-01 --dry-run",
    "undo --list",
    "export --out OUT",
    "grep .",
    "grep --count .",
    "grep --files-with-matches .",
)
"""Command lines that change nothing; DIR is the directory, the last word by default, COPY a copy
that lacks a partition, OUT a file elsewhere, COLLECTION one of a disk like the directory, PLAN one
of another cluster, PARTITION one of its partitions, TARGET another log directory, REPOSITORY one
with a backup of the directory."""


def test_every_command_with_json_output_has_a_line() -> None:
    covered = [
        name
        for name in json_commands()
        if any(f"{line} ".startswith(f"{name} ") for line in READING)
    ]
    assert set(json_commands()) - set(covered) == {"dump-segment", "explain", "query"}


def answered(line: str, directory: Path) -> list[dict[str, Any]]:
    """The objects that a command line writes; all are valid."""
    words = line.split()
    if "DIR" in words:
        words[words.index("DIR")] = str(directory)
    elif "PARTITION" in words:
        words[words.index("PARTITION")] = str(max(directory.glob("[a-z]*-0"), default=directory))
    elif "COLLECTION" not in words and "REPOSITORY" not in words:
        words.append(str(directory))
    with tempfile.TemporaryDirectory() as other:
        if "OUT" in words:
            words[words.index("OUT")] = str(Path(other, "out.json"))
        if "REPOSITORY" in words:
            words[words.index("REPOSITORY")] = str(Path(other, "repository"))
            run_kdump(
                ["backup", "create", str(Path(other, "repository")), str(directory)],
                directory.parent,
            )
        if "COLLECTION" in words:
            collection = write_collection(Path(other, "c.json"), disk(1, replica("orders")))
            words[words.index("COLLECTION")] = str(collection)
        if "PLAN" in words:
            words[words.index("PLAN")] = str(write_small_plan(Path(other, "plan.json")))
        if "TARGET" in words:
            words[words.index("TARGET")] = str(write_log_directory(Path(other, "target")))
        if "EMPTY" in words:
            words[words.index("EMPTY")] = other
        if "COPY" in words:
            words[words.index("COPY")] = str(copy_without_a_partition(directory, Path(other)))
        outcome = run_kdump([*words, "--output", "jsonl"], directory.parent)
    answer = all_objects(outcome.stdout)
    assert not list(problems_of_objects(words[0], answer))
    return answer


def copy_without_a_partition(directory: Path, folder: Path) -> Path:
    copy = shutil.copytree(directory, folder / "copy")
    partitions = sorted(path for path in copy.iterdir() if path.is_dir())
    for path in partitions[1:2]:
        shutil.rmtree(path)
    return copy


def crashed(tmp_path: Path, fixtures: Path) -> Path:
    """A real directory after a crash, with zeroes in the middle of a log."""
    shutil.copytree(fixtures / "out" / "crashed" / "d1", tmp_path / "d1")
    log = tmp_path / "d1" / "crash-none-0" / f"{100:020d}.log"
    content = bytearray(log.read_bytes())
    content[81920:86016] = bytes(4096)
    log.write_bytes(content)
    return tmp_path / "d1"


def kafka_0_7(tmp_path: Path) -> Path:
    partition = tmp_path / "d1" / "old-0"
    partition.mkdir(parents=True)
    log = message_07(b"a") + wrapper_07([message_07(b"\xff"), message_07(b"c")]) + b"\0\0\0"
    (partition / f"{0:020d}.kafka").write_bytes(log)
    return tmp_path / "d1"


def strange(tmp_path: Path) -> Path:
    """A directory that is damaged as a whole: malformed small files, and names of all kinds."""
    root = write_log_directory(tmp_path / "d1", clean=False)
    for name in ("meta.properties", "recovery-point-offset-checkpoint"):
        (root / name).write_bytes(b"\xff\xfe")
    for name in ("no-number-x", "orders-0.ab-future", "orders-1.cd-delete", "orders-2.ef-stray"):
        (root / name).mkdir()
    (root / "notes.txt").write_bytes(b"")
    return root


def damaged(tmp_path: Path) -> Path:
    """A clean directory with damage: batches, records, and names."""
    root = plain_directory(tmp_path / "d1", ("orders", "users"))
    (root / "no-number-x").mkdir()
    (root / "users-0" / "x.cleaned").write_bytes(b"")
    log = min((root / "orders-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    unreadable = with_body(batch([record(1)]), b"no records")
    log.write_bytes(unreadable + content + batch([record(10_000)]))
    return root


def real(name: str) -> Callable[[Path, Path], Path]:
    """A real directory in place: nothing here writes to it."""
    return lambda _, fixtures: fixtures / "out" / name


DIRECTORIES: Final[dict[str, Callable[[Path, Path], Path]]] = {
    "clean": real("clean-mv39/logs"),
    "cluster metadata": real("clean-mv39/meta"),
    "controller": lambda _, fixtures: fixtures / "states" / "clean" / "c1002",
    "crashed": crashed,
    "leftovers": real("leftover-4-swap-complete/logs"),
    "legacy": real("legacy/logs"),
    "strange": lambda tmp_path, _: strange(tmp_path),
    "damaged": lambda tmp_path, _: damaged(tmp_path),
    "kafka 0.7": lambda tmp_path, _: kafka_0_7(tmp_path),
    "compactable": lambda tmp_path, _: plain_directory(tmp_path / "d1", ("orders", "users")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DIRECTORIES)
def test_output_of_reading_commands_and_previews_is_valid(
    kind: str, tmp_path: Path, fixtures: Path
) -> None:
    directory = DIRECTORIES[kind](tmp_path, fixtures)
    for line in READING:
        answered(line, directory)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_output_about_every_kind_of_damage_is_valid(
    case: Callable[[Path], object], tmp_path: Path
) -> None:
    directory = tmp_path / "logs"
    case(directory)
    for line in (
        "verify --deep",
        "recover --policy salvage --dry-run",
        "verify --repair --policy truncate",
        "undo --list",
        "undo --dry-run",
        "undo",
        "recover --policy salvage",
        "resolve",
        "rebuild-index",
        "snapshot rebuild",
        "checkpoint rebuild",
        f"retain --topic orders {' '.join(CONFIG)}",
        "undo --discard",
    ):
        answered(line, directory)


def test_output_of_a_compaction_is_valid(tmp_path: Path) -> None:
    directory = plain_directory(tmp_path / "logs", ("orders", "users"))
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "no-number-x").mkdir()
    line = f"compact --recover --undo --topic * --now {NOW_MS} {' '.join(CONFIG)}"
    kinds = {each["type"] for each in answered(line, directory)}
    assert {"recovery_finding", "recovery_partition", "recovery_directory"} <= kinds


DECODERS: Final = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DIRECTORIES)
def test_output_of_dump_segment_is_valid(kind: str, tmp_path: Path, fixtures: Path) -> None:
    directory = DIRECTORIES[kind](tmp_path, fixtures)
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix != ".lock":
            topic = path.parent.name.rpartition("-")[0]
            options = [DECODERS[topic]] if topic in DECODERS else ["--print-data-log"]
            answered(f"dump-segment --follow-bad --limit 40 {' '.join(options)}", path)


@pytest.mark.parametrize(
    "row",
    [
        Interrupted(Path("d1"), "recover", is_finished=True),
        Interrupted(
            Path("d1"),
            "compact",
            is_finished=False,
            files=(
                Restored("orders-0/a.log", is_removed=True, size_bytes=0),
                Restored("orders-0/b.log", is_removed=False, size_bytes=7),
            ),
        ),
    ],
)
def test_output_about_an_interrupted_run_is_valid(row: Interrupted) -> None:
    said = interrupted_event(row)
    answer = [{"type": said.type, **said.row}]
    for command in ("recover", "compact", "retain", "verify", "checkpoint"):
        assert not list(problems_of_objects(command, answer))


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("line", ["ls", "info", "verify", "recover --dry-run", "undo --list"])
def test_complete_output_is_valid(line: str, form: str, tmp_path: Path) -> None:
    directory = plain_directory(tmp_path / "logs", ("orders",))
    words = [*line.split(), "--output", form, str(directory)]
    answer = all_objects(run_kdump(words, tmp_path).stdout)
    assert problem_of_answer(words[0], answer) is None
    assert problem_of_answer(words[0], answer[1:]) is not None
    assert problem_of_answer(words[0], answer[:-1]) is not None
    assert problem_of_answer(words[0], [*answer[:-1], {"type": "new"}, answer[-1]]) is not None


def test_every_command_with_json_output_has_a_schema_and_a_section() -> None:
    named = {
        command
        for name, document in documents().items()
        if name not in (COMMON, *FILES)
        for command in document["$defs"]["header"]["properties"]["command"]["enum"]
    }
    assert named == set(json_commands())
    page = PAGE.read_text(encoding="utf-8")
    assert not [name for name in documents() if f"schemas/{name}" not in page]


def types_in_the_table() -> dict[str, set[str]]:
    """The types that the page's table names for each schema."""
    named: dict[str, set[str]] = {}
    above = set[str]()
    for _, types, schemas in re.findall(
        r"^\| (`.+?) \| (.+) \| (\[.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    ):
        own = {*re.findall(r"`(\w+)`", types)}
        above = own | above if types.startswith("the same") else own
        for name in re.findall(r"\(schemas/(.+?)\)", schemas):
            named.setdefault(name, set()).update(above)
    return named


@pytest.mark.parametrize("name", sorted({*documents()} - {COMMON, *FILES, "dump-segment.json"}))
def test_the_table_names_every_type_that_a_schema_has(name: str) -> None:
    written = {
        reference.rpartition("/")[2]
        for reference in re.findall(r"#/\$defs/\w+", json.dumps(documents()[name]["items"]))
    }
    assert written - {"header", "end"} == types_in_the_table()[name]


def objects_in(schema: object) -> Iterator[dict[str, Any]]:
    """Every schema of an object with named fields in ``schema``."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            yield schema
        for each in schema.values():
            yield from objects_in(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects_in(each)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(documents()))
def test_a_field_without_an_entry_in_the_schema_is_an_error(name: str) -> None:
    document = documents()[name]
    jsonschema.Draft202012Validator.check_schema(document)
    assert all(each["additionalProperties"] is False for each in objects_in(document))


def examples() -> list[tuple[int, dict[str, Any]]]:
    """The objects that the page shows, and the lines that they are in."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [(n, line.strip()) for n, line in enumerate(lines, 1) if line.startswith('    {"type"')]
    return [(number, json.loads(text)) for number, text in shown]


@pytest.mark.parametrize(("line", "row"), examples())
def test_an_example_on_the_page_is_valid_for_some_command(line: int, row: dict[str, Any]) -> None:
    names = [name for name in documents() if name not in (COMMON, *FILES)]
    commands = [name.removesuffix(".json") for name in names]
    assert [each for each in commands if not list(problems_of_objects(each, [row]))]
