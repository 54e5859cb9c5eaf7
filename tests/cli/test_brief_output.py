"""Output for people fits on the screen, and the most important lines come last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.batches import batch
from builders.in_process import run_kdump, run_on_terminal
from builders.many_partitions import write_partitions
from builders.verified import LogModel, file, records
from kdump.check.findings import Finding, Place, Severity
from kdump.cli.output.brief import BriefFindings
from kdump.cli.output.terminal import wrapped
from kdump.formats.names import FileKind

COUNT = 30
DAMAGED = (7, 26)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a log directory ``d`` with many partitions, two of them damaged."""
    root = tmp_path_factory.mktemp("many")
    write_partitions(root / "d", COUNT, damaged=DAMAGED, left_over=range(22))
    return root


@pytest.fixture
def damaged_often(tmp_path: Path) -> Path:
    """Return a log directory with many damaged batches in one file."""
    model = LogModel()
    content = [batch(records(12 + 3 * each, 3), partition_leader_epoch=1) for each in range(50)]
    model.segments[12] = content
    partition = model.write(tmp_path / "d")
    log = bytearray(file(partition, 12, FileKind.LOG).read_bytes())
    for each in range(0, 50, 2):
        log[(each + 1) * len(content[0]) - 3] ^= 1
    file(partition, 12, FileKind.LOG).write_bytes(log)
    return tmp_path


def lines_of(root: Path, *args: str) -> list[str]:
    return run_kdump(args, root).stdout.decode().splitlines()


EVERY_COMMAND = [
    "ls d",
    "info d",
    "verify --no-progress d",
    "verify --no-progress --output table d",
    "recover --no-progress --dry-run d",
    "resolve --no-progress --dry-run d",
    "checkpoint show d",
    "retain --topic * --dry-run d",
    "ls nowhere",
    "recover --dry-rum d",
]


@pytest.mark.parametrize("line", EVERY_COMMAND)
def test_lines_fit_on_a_narrow_terminal(many: Path, line: str) -> None:
    lines = run_on_terminal(line.split(), many, 60)

    assert lines
    # A path is never split; if it is too long, it has a line of its own.
    assert [each for each in lines if len(each) > 60 and " " in each.strip()] == []


def test_a_narrow_listing_hides_the_topic_id_first(many: Path) -> None:
    def titles(columns: int) -> set[str]:
        return set(run_on_terminal(["ls", "d"], many, columns)[0].split())

    piped = set(lines_of(many, "ls", "d")[0].split())
    assert titles(300) == piped
    assert piped - titles(140) == {"ID"}
    assert {"TOPIC", "PARTITION", "END"} <= titles(60)


def test_the_narrowest_listing_of_two_directories_tells_replicas_and_states_apart(
    tmp_path: Path,
) -> None:
    for name in ("d1", "d2"):
        write_partitions(tmp_path / name, 1)
    titles = run_on_terminal(["ls", "d1", "d2"], tmp_path, 42)[0]
    assert titles.split() == ["LOG", "DIR", "TOPIC", "PARTITION", "STATE", "END"]


def test_the_narrowest_lookup_in_two_directories_tells_replicas_apart(tmp_path: Path) -> None:
    for name in ("d1", "d2"):
        write_partitions(tmp_path / name, 1)
    line = ["lookup", "--offset", "0", "d1", "d2"]
    assert run_on_terminal(line, tmp_path, 45)[0].startswith("LOG DIR")


def test_columns_that_do_not_fit_are_named(many: Path) -> None:
    *_, last = run_on_terminal(["ls", "d"], many, 140)

    assert last == "terminal too narrow for: TOPIC ID (--output json has all columns)"


def test_a_long_name_has_a_line_of_its_own(tmp_path: Path) -> None:
    root = write_partitions(tmp_path / "d", 1)
    name = "a" * 100
    (root / "events-0").rename(root / f"{name}-0")

    _, first, second, *_ = run_on_terminal(["ls", "d"], tmp_path, 60)

    assert first == name
    assert second.split()[0] == "0"


def test_a_large_plan_is_counted_and_its_losses_come_last(many: Path) -> None:
    lines = lines_of(many, "recover", "--dry-run", "d")

    assert len(lines) <= COUNT
    assert any(f"write {COUNT} producer snapshots" in line for line in lines)
    losses = [f"d/events-{number}: " for number in DAMAGED]
    at = [n for n, line in enumerate(lines) if line.startswith(tuple(losses))]
    assert len(at) == len(DAMAGED)
    assert at[0] >= len(lines) - len(DAMAGED) - 3
    assert "records would be lost in 2 partitions" in lines[at[-1] :]


def test_verbose_shows_each_change(many: Path) -> None:
    lines = lines_of(many, "recover", "--dry-run", "-v", "d")

    assert sum(line.startswith("  truncate ") and ".index " in line for line in lines) == COUNT
    assert sum(line.startswith("d/events-") for line in lines) >= COUNT


def test_a_small_plan_is_shown_whole(tmp_path: Path) -> None:
    write_partitions(tmp_path / "d", 2)

    lines = lines_of(tmp_path, "recover", "--dry-run", "d")

    assert sum(line.startswith("  truncate ") for line in lines) == 2


def test_partitions_without_loss_are_counted_after_twenty(many: Path) -> None:
    lines = lines_of(many, "recover", "--dry-run", "d")

    assert sum("no batch is lost" in line for line in lines) == 20
    assert "… and 1 more partition without loss (--verbose shows all)" in lines


def test_programs_get_everything(many: Path) -> None:
    said = [
        json.loads(line) for line in lines_of(many, "recover", "--dry-run", "--output=jsonl", "d")
    ]

    partitions = [row for row in said if row["type"] == "partition"]
    assert len(partitions) == COUNT
    assert all(row["operations"] for row in partitions)


def test_what_to_run_next_is_the_last_line(many: Path) -> None:
    verify = run_on_terminal(["verify", "--no-progress", "d"], many, 60)
    recover = run_on_terminal(["recover", "--dry-run", "--no-progress", "d"], many, 60)

    assert verify[-1].strip() == "kdump recover --dry-run d"
    assert recover[-1].strip() == "kdump recover --policy salvage --dry-run d"


def test_two_findings_of_a_code_are_shown_for_each_file(damaged_often: Path) -> None:
    lines = lines_of(damaged_often, "verify", "d")

    shown = [line for line in lines if "[batch-checksum]" in line]
    path = "d/orders-0/00000000000000000012.log"
    assert len(shown) == 3
    assert shown[2] == f"error: {path}: … and 23 more [batch-checksum] (--verbose shows all)"
    assert lines[-1].endswith("kdump recover --policy salvage --partition orders-0 d")


def test_verbose_shows_each_finding(damaged_often: Path) -> None:
    lines = lines_of(damaged_often, "verify", "-v", "d")

    assert sum("[batch-checksum]" in line for line in lines) > 20
    assert not any("(--verbose" in line for line in lines)


def test_the_table_of_findings_is_limited_too(damaged_often: Path) -> None:
    lines = lines_of(damaged_often, "verify", "--output", "table", "d")

    assert sum(line.startswith("│ error") for line in lines) == 2


def finding(path: str, severity: Severity, code: str = "some-code") -> Finding:
    return Finding(code, severity, Place(path), "something is wrong")


def test_warnings_of_many_files_are_counted_and_damage_is_not() -> None:
    brief = BriefFindings(verbose=False)

    warnings = [brief.takes(finding(f"w{each}", Severity.WARNING)) for each in range(100)]
    errors = [brief.takes(finding(f"e{each}", Severity.ERROR)) for each in range(100)]

    assert (sum(warnings), sum(errors)) == (20, 100)
    assert list(brief.rest()) == ["warning: … 80 more times [some-code] (--verbose shows all)"]


def test_a_command_to_copy_is_never_wrapped() -> None:
    line = "d: 3 changes made; to undo: kdump undo '/data/a directory with a long name' 1"

    assert wrapped(line, 40).splitlines() == [
        "d: 3 changes made; to undo:",
        "    kdump undo '/data/a directory with a long name' 1",
    ]


def test_a_path_is_never_wrapped() -> None:
    path = "/data/" + "x" * 60
    assert f"{path}:" in wrapped(f"error: {path}: something is wrong with it", 40).split()


def test_a_pipe_gets_each_finding_on_one_line(damaged_often: Path) -> None:
    lines = lines_of(damaged_often, "verify", "d")

    assert max(map(len, lines)) > 100
    assert not any(line.startswith("    ") for line in lines)


def test_an_undo_lists_twenty_files_and_counts_the_others(tmp_path: Path) -> None:
    write_partitions(tmp_path / "d", 10)
    run_kdump(["recover", "d"], tmp_path)

    brief = lines_of(tmp_path, "undo", "--dry-run", "d")
    verbose = lines_of(tmp_path, "undo", "--dry-run", "-v", "d")

    more = len(verbose) - len(brief) + 1
    *listed, counted, outcome = brief
    assert listed == verbose[:21]
    assert counted == f"… and {more} more files (--verbose lists all)"
    assert outcome == verbose[-1]


def test_partitions_left_for_one_reason_are_counted_after_twenty(tmp_path: Path) -> None:
    write_partitions(tmp_path / "d", COUNT)
    run_kdump(["recover", "--no-undo", "d"], tmp_path)

    lines = lines_of(tmp_path, "retain", "--topic", "*", "--dry-run", "d")

    assert sum(line.startswith("d/events-") for line in lines) == 20
    counts, advice = lines[-2:]
    assert counts.startswith("… and 10 more partitions left unchanged: ")
    assert "or --config cleanup.policy=... --config " in advice


def test_a_table_of_records_keeps_keys_and_values_on_a_narrow_terminal(many: Path) -> None:
    log = "d/events-0/00000000000000000000.log"
    _, titles, *_ = run_on_terminal(["dump-segment", "--output", "table", log], many, 60)

    shown = titles.replace("│", "").split()
    assert {"Type", "Offsets", "Key", "Value"} <= set(shown)
    assert not {"Size", "Timestamp"} & set(shown)
