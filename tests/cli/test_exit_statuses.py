"""The exit statuses of all commands and previews."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from builders.dead_clusters import an_id, disk, replica, write_collection
from builders.image_plans import write_small_plan
from builders.in_process import run_kdump
from builders.log_directories import TOPIC_ID_TEXT, write_log_directory
from builders.metadata_log import feature_record, topic_record, write_metadata_log
from builders.verified import END_OFFSET, NOW_MS, LogModel, file
from kdump.cli.command_group import command_names
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.state.metadata.cluster_plan import Notice, NoticeKind

MANUAL: Final = Path(__file__).resolve().parents[2] / "man" / "kdump.rst"
DENSE: Final = ("--config", "index.interval.bytes=0")
COMMANDS: Final = {
    "recover": ("recover", "--now", str(NOW_MS)),
    "resolve": ("resolve",),
    "verify --repair": ("verify", "--repair", "--now", str(NOW_MS)),
    "rebuild-index": ("rebuild-index",),
}

Happening = Callable[[Path], None]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with nothing to repair."""
    root = LogModel().write(tmp_path / "logs").parent
    for path in (root / "orders-0").glob("*index"):
        path.unlink()
    run_kdump(["rebuild-index", "--no-undo", *DENSE, str(root)], tmp_path)
    return root


def status(command: str, *options: str | Path) -> int:
    return run_kdump([*COMMANDS[command], *DENSE, *map(str, options)], Path.cwd()).exit_status


def partition(root: Path) -> Path:
    return root / "orders-0"


def become_unclean(root: Path) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()


def lose_an_index(root: Path) -> None:
    file(partition(root), 0, FileKind.OFFSET_INDEX).unlink()


def leave_a_swap(root: Path) -> None:
    index = file(partition(root), 0, FileKind.OFFSET_INDEX)
    shutil.copy(index, f"{index}.cleaned")


def damage_the_last_batch(root: Path) -> None:
    become_unclean(root)
    log = file(partition(root), 12, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    (root / names.RECOVERY_POINT_CHECKPOINT).unlink()


def lose_the_topic_id(root: Path) -> None:
    (partition(root) / names.PARTITION_METADATA).unlink()


NOTHING: Final[Happening] = lambda root: None  # noqa: E731 - a happening like the others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "happening", "previewed", "done"),
    [
        ("recover", NOTHING, 0, 0),
        ("recover", become_unclean, 1, 0),
        ("recover", lose_an_index, 1, 1),
        ("recover", damage_the_last_batch, 4, 1),
        ("recover", lose_the_topic_id, 4, 4),
        ("resolve", NOTHING, 0, 0),
        ("resolve", leave_a_swap, 1, 1),
        ("verify --repair", NOTHING, 0, 0),
        ("verify --repair", lose_an_index, 1, 1),
        ("verify --repair", leave_a_swap, 1, 1),
        ("verify --repair", damage_the_last_batch, 4, 1),
        ("verify --repair", lose_the_topic_id, 4, 4),
        ("rebuild-index", NOTHING, 0, 0),
        ("rebuild-index", lose_an_index, 1, 1),
    ],
)
def test_the_status_of_a_preview_reports_changes_and_losses(
    command: str, happening: Happening, previewed: int, done: int, log_dir: Path
) -> None:
    happening(log_dir)
    assert status(command, "--dry-run", log_dir) == previewed
    assert status(command, log_dir) == done


@pytest.mark.slow
def test_remaining_damage_overrides_the_status_of_repairs(log_dir: Path) -> None:
    shutil.copytree(partition(log_dir), log_dir / "orders-1")
    lose_an_index(log_dir)
    (log_dir / "orders-1" / names.PARTITION_METADATA).unlink()
    assert status("verify --repair", "--dry-run", log_dir) == 4
    assert status("verify --repair", log_dir) == 5


@pytest.mark.parametrize(("strict", "expected"), [(False, 0), (True, 4)])
def test_a_warning_is_damage_with_strict(strict: bool, expected: int, log_dir: Path) -> None:
    leave_a_swap(log_dir)
    options = ["--strict"] if strict else []
    verified = run_kdump(["verify", *options, "--now", str(NOW_MS), str(log_dir)], Path.cwd())
    assert verified.exit_status == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_the_lock_file_of_a_crash_is_kept_if_there_is_nothing_to_do(
    command: str, log_dir: Path
) -> None:
    (log_dir / names.LOCK_FILE).touch()
    assert status(command, log_dir) == 0
    assert (log_dir / names.LOCK_FILE).exists()


def test_a_recovery_removes_the_lock_file_of_a_crash(log_dir: Path) -> None:
    become_unclean(log_dir)
    (log_dir / names.LOCK_FILE).touch()
    status("recover", log_dir)
    assert not (log_dir / names.LOCK_FILE).exists()


# Every status of every command, as the manual's table has them


def malform(name: str) -> Happening:
    """Make a checkpoint malformed."""

    def happen(root: Path) -> None:
        (root / name).write_bytes(b"malformed")

    return happen


def lose_the_snapshot(root: Path) -> None:
    (partition(root) / f"{END_OFFSET:020d}.snapshot").unlink()


def damage_the_first_batch(root: Path) -> None:
    log = file(partition(root), 0, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)


def break_a_length(root: Path) -> None:
    log = file(partition(root), 0, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[8] ^= 0x80
    log.write_bytes(content)


def become_unclean_and_lose_an_index(root: Path) -> None:
    become_unclean(root)
    lose_an_index(root)


def change_a_checkpoint(root: Path) -> None:
    run_kdump(["checkpoint", "set", str(root), "cleaner-offset", "orders-0=3"], root)


def become_stray(root: Path) -> None:
    partition(root).rename(root / "orders-0.0123456789abcdef-stray")


def become_stray_twice(root: Path) -> None:
    shutil.copytree(partition(root), root / "orders-0.fedcba9876543210-stray")
    become_stray(root)


def leave_a_swap_of_an_unknown_segment(root: Path) -> None:
    (partition(root) / f"{12:020d}.log.swap").write_bytes(b"malformed")


def copy_after(happening: Happening) -> Happening:
    """Copy the directory, and change the copy."""

    def happen(root: Path) -> None:
        happening(root)
        shutil.copytree(root, root.parent / "copy")

    return happen


def copy_and_lose_a_partition(root: Path) -> None:
    copy_after(NOTHING)(root)
    shutil.rmtree(partition(root))


def copy_and_damage_a_batch(root: Path) -> None:
    copy_after(NOTHING)(root)
    damage_the_first_batch(root)


def have_a_target(root: Path) -> None:
    write_log_directory(root.parent / "target")


def have_transplanted(root: Path) -> None:
    have_a_target(root)
    run_kdump(TRANSPLANT, root)


def have_a_target_and_damage(root: Path) -> None:
    have_a_target(root)
    damage_the_first_batch(root)


def have_metadata(root: Path) -> None:
    write_metadata_log(root, [topic_record("orders", 1), topic_record("users", 2)])


def have_a_plan(root: Path, *notices: Notice) -> None:
    write_small_plan(root.parent / "p.json", *notices)
    (root.parent / "empty").mkdir()


def have_a_plan_with_a_loss(root: Path) -> None:
    what = "a topic is lost"
    have_a_plan(root, Notice(NoticeKind.LOSS, "topic", "t", None, what, needs_acceptance=True))


def have_an_empty_directory(root: Path) -> None:
    (root.parent / "empty").mkdir()


def lose_a_topic_id_and_have_an_empty_directory(root: Path) -> None:
    lose_the_topic_id(root)
    have_an_empty_directory(root)


def have_a_controller(root: Path) -> None:
    records = [feature_record("metadata.version", 30), topic_record("orders", 1)]
    write_metadata_log(root, [*records, topic_record("users", 2)])
    (root / names.META_PROPERTIES).write_text("version=1\ncluster.id=c\nnode.id=1\n")


def have_a_damaged_controller(root: Path) -> None:
    have_a_controller(root)
    log = root / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)


def have_damaged_metadata(root: Path) -> None:
    have_metadata(root)
    log = root / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)


def lose_the_identity(root: Path) -> None:
    (root / names.META_PROPERTIES).unlink()


def have_no_bootstrap_metadata(root: Path) -> None:
    have_metadata(root)
    (root / names.BOOTSTRAP_CHECKPOINT).write_bytes(b"")


def have_a_collection(root: Path) -> None:
    write_collection(root.parent / "c.json", disk(1, replica("orders")))


def have_a_collection_of_two_ids(root: Path) -> None:
    other = replica("orders", 1, topic_id=an_id("other"))
    write_collection(root.parent / "c.json", disk(1, replica("orders"), other))


def have_a_certificate(root: Path) -> None:
    assert run_kdump([*FINISH, "--key", "of nobody", "."], root).exit_status == 0


ORDERS: Final = ("--topic", "orders")
IDENTITY: Final = ("identity", "--repair", "--cluster-id", "a-cluster", "--node-id", "7")
COMPACT: Final = ("compact", *ORDERS, "--config", "cleanup.policy=compact")
DELETE: Final = (
    "delete-records",
    "--partition",
    "orders-0",
    "--before",
    "3",
    "--config",
    "cleanup.policy=delete",
)
ERASE: Final = ("erase", *ORDERS, "--key-prefix", "k", "--yes")
FINISH: Final = ("erase", "--finish", "--certificate", "../erased.json")
VERIFY_ERASED: Final = ("erase", "--verify", "../erased.json")
RETAIN: Final = (
    *("retain", *ORDERS),
    *("--config", "cleanup.policy=delete", "--config", "retention.ms=1"),
)
SET: Final = ("checkpoint", "set", ".", "cleaner-offset", "orders-0=5")
LOOKUP: Final = ("lookup", "--offset", "0")
OUT: Final = ("--out", "../collection.json")
REPORT: Final = ("report", "--out", "../report.html", ".")
PLAN: Final = ("metadata", "plan", "--controller", "4001@h:9093", "--out", "../p.json", "../c.json")
REBUILD: Final = (
    *("metadata", "rebuild", "--controller", "9@h:9093", "--into", "../empty"),
    ".",
)
APPLY: Final = ("metadata", "apply", "../p.json", "../empty")
MOVE: Final = ("move", "--drain", ".", "--to", "../copy")
TRANSPLANT: Final = (
    *("transplant", "orders-0", "--into", "../target", "--leader-epoch", "0"),
    *("--topic-id", TOPIC_ID_TEXT, "--open-transactions", "truncate"),
)
BACKUP: Final = ("backup", "create", "../repository", ".")
COPY: Final = ("copy", ".", "../copied")
DIFF: Final = ("diff", ".", "../copy")
EXPORT: Final = ("export", "--out", "../out", ".")
DUMP: Final = ("dump-segment", f"orders-0/{0:020d}.log")
RESET: Final = ("quorum", "reset", "--voter", "1@h:1")
RECOVERY_POINTS: Final = names.RECOVERY_POINT_CHECKPOINT
CELLS: Final[dict[str, dict[int, tuple[tuple[str, ...], Happening]]]] = {
    "backup": {0: (BACKUP, NOTHING), 4: (BACKUP, damage_the_first_batch)},
    "checkpoint show": {
        0: (("checkpoint", "show", "."), NOTHING),
        4: (("checkpoint", "show", "."), malform(RECOVERY_POINTS)),
    },
    "checkpoint": {
        0: (("checkpoint", "rebuild", "."), NOTHING),
        1: (SET, NOTHING),
    },
    "checkpoint --dry-run": {
        0: (("checkpoint", "rebuild", "--dry-run", "."), NOTHING),
        1: ((*SET, "--dry-run"), NOTHING),
    },
    "compact": {
        0: ((*COMPACT, "."), NOTHING),
        1: ((*COMPACT, "--recover", "."), become_unclean_and_lose_an_index),
        4: ((*COMPACT, "."), become_unclean),
    },
    "completion": {0: (("completion", "bash"), NOTHING)},
    "serve": {
        0: (("serve", "--listen", "127.0.0.1:0", "."), NOTHING),
        4: (("serve", "--listen", "127.0.0.1:0", "."), malform(RECOVERY_POINTS)),
    },
    "explain": {0: (("explain", "torn-tail"), NOTHING)},
    "delete-records": {
        0: ((*DELETE, "."), NOTHING),
        4: ((*DELETE, "."), become_unclean),
    },
    "erase": {
        0: (("erase", *ORDERS, "--key", "of nobody", "."), NOTHING),
        1: ((*ERASE, "."), NOTHING),
        4: ((*ERASE, "."), become_unclean),
    },
    "erase --dry-run": {
        0: (("erase", *ORDERS, "--key", "of nobody", "--dry-run", "."), NOTHING),
        1: ((*ERASE, "--dry-run", "."), NOTHING),
        4: ((*ERASE, "--dry-run", "."), become_unclean),
    },
    "erase --finish": {
        0: ((*FINISH, "--key", "of nobody", "."), NOTHING),
        4: ((*FINISH, "--key-prefix", "k", "."), NOTHING),
    },
    "erase --verify": {
        0: ((*VERIFY_ERASED, "."), have_a_certificate),
        4: ((*VERIFY_ERASED, "--key", "of another", "."), have_a_certificate),
    },
    "diff": {
        0: (DIFF, copy_after(NOTHING)),
        1: (DIFF, copy_and_lose_a_partition),
        4: (DIFF, copy_after(damage_the_first_batch)),
    },
    "dump-segment": {0: (DUMP, NOTHING), 4: (DUMP, damage_the_first_batch)},
    "export": {0: (EXPORT, NOTHING), 4: (EXPORT, damage_the_first_batch)},
    "grep": {
        0: (("grep", "", "."), NOTHING),
        1: (("grep", "in no record", "."), NOTHING),
        4: (("grep", "", "."), damage_the_first_batch),
    },
    "groups": {0: (("groups", "."), NOTHING), 4: (("groups", "."), malform(RECOVERY_POINTS))},
    "identity": {
        0: (("identity", "."), NOTHING),
        4: (("identity", "."), lose_the_identity),
    },
    "identity --repair": {
        0: ((*IDENTITY, "."), NOTHING),
        1: ((*IDENTITY, "."), lose_the_identity),
        4: ((*IDENTITY, "."), have_no_bootstrap_metadata),
    },
    "identity --dry-run": {
        0: ((*IDENTITY, "--dry-run", "."), NOTHING),
        1: ((*IDENTITY, "--dry-run", "."), lose_the_identity),
        4: ((*IDENTITY, "--dry-run", "."), have_no_bootstrap_metadata),
    },
    "info": {0: (("info", "."), NOTHING), 4: (("info", "."), malform(RECOVERY_POINTS))},
    "lookup": {0: ((*LOOKUP, "."), NOTHING), 4: ((*LOOKUP, "."), damage_the_first_batch)},
    "ls": {0: (("ls", "."), NOTHING), 4: (("ls", "."), malform(RECOVERY_POINTS))},
    "metadata": {
        0: (("metadata", "show", "."), have_metadata),
        4: (("metadata", "history", "."), have_damaged_metadata),
    },
    "metadata collect": {
        0: (("metadata", "collect", *OUT, "."), NOTHING),
        4: (("metadata", "collect", *OUT, "."), malform(RECOVERY_POINTS)),
    },
    "metadata plan": {
        0: (PLAN, have_a_collection),
        4: (PLAN, have_a_collection_of_two_ids),
    },
    "metadata apply": {0: (APPLY, have_a_plan), 4: (APPLY, have_a_plan_with_a_loss)},
    "metadata rebuild": {
        0: (REBUILD, have_an_empty_directory),
        4: (REBUILD, lose_a_topic_id_and_have_an_empty_directory),
    },
    "metadata diff": {
        0: (("metadata", "diff", "--from", "1", "."), have_metadata),
        1: (("metadata", "diff", "--from", "0", "."), have_metadata),
        4: (("metadata", "diff", "--from", "0", "."), have_damaged_metadata),
    },
    "query": {
        0: (("query", "SELECT topic, offset FROM records", "."), NOTHING),
        4: (("query", "SELECT topic, offset FROM records", "."), damage_the_first_batch),
    },
    "quorum show": {
        0: (("quorum", "show", "."), have_metadata),
        4: (("quorum", "show", "."), have_damaged_metadata),
    },
    "quorum reset": {
        0: ((*RESET, "."), have_a_controller),
        4: ((*RESET, "."), have_a_damaged_controller),
    },
    "copy": {0: (COPY, NOTHING), 4: (COPY, damage_the_first_batch)},
    "move": {0: (MOVE, copy_after(NOTHING)), 4: (MOVE, copy_and_damage_a_batch)},
    "rebuild-index": {
        0: ((*COMMANDS["rebuild-index"], *DENSE, "."), NOTHING),
        1: ((*COMMANDS["rebuild-index"], *DENSE, "."), lose_an_index),
        4: ((*COMMANDS["rebuild-index"], *DENSE, "."), damage_the_first_batch),
    },
    "recover": {
        0: ((*COMMANDS["recover"], *DENSE, "."), NOTHING),
        1: ((*COMMANDS["recover"], *DENSE, "."), damage_the_last_batch),
        4: ((*COMMANDS["recover"], *DENSE, "."), lose_the_topic_id),
    },
    "report": {0: (REPORT, NOTHING), 4: (REPORT, damage_the_first_batch)},
    "resolve": {
        0: ((*COMMANDS["resolve"], *DENSE, "."), NOTHING),
        1: ((*COMMANDS["resolve"], *DENSE, "."), leave_a_swap),
        4: ((*COMMANDS["resolve"], *DENSE, "."), leave_a_swap_of_an_unknown_segment),
    },
    "retain": {0: ((*RETAIN, "."), NOTHING), 4: ((*RETAIN, "."), become_unclean)},
    "rewind": {
        0: (("rewind", "--to", "2100-01-01", "."), NOTHING),
        1: (("rewind", "--to", "2020-01-01", "."), NOTHING),
        4: (("rewind", "--to", "2020-01-01", "."), damage_the_first_batch),
    },
    "rewind --dry-run": {
        0: (("rewind", "--to", "2100-01-01", "--dry-run", "."), NOTHING),
        1: (("rewind", "--to", "2020-01-01", "--dry-run", "."), NOTHING),
        4: (("rewind", "--to", "2020-01-01", "--dry-run", "."), damage_the_first_batch),
    },
    "snapshot": {
        0: (("snapshot", "rebuild", "."), NOTHING),
        1: (("snapshot", "rebuild", "."), lose_the_snapshot),
        4: (("snapshot", "rebuild", "."), break_a_length),
    },
    "transplant": {
        0: (TRANSPLANT, have_transplanted),
        1: (TRANSPLANT, have_a_target),
        4: (TRANSPLANT, have_a_target_and_damage),
    },
    "transplant --dry-run": {
        0: ((*TRANSPLANT, "--dry-run"), have_transplanted),
        1: ((*TRANSPLANT, "--dry-run"), have_a_target),
        4: ((*TRANSPLANT, "--dry-run"), have_a_target_and_damage),
    },
    "txns": {0: (("txns", "."), NOTHING), 4: (("txns", "."), malform(RECOVERY_POINTS))},
    "undelete": {
        0: (("undelete", "."), NOTHING),
        1: (("undelete", "."), become_stray),
        4: (("undelete", "."), become_stray_twice),
    },
    "undo": {0: (("undo", "."), change_a_checkpoint)},
    "verify": {
        0: (("verify", "."), NOTHING),
        4: (("verify", "."), damage_the_first_batch),
    },
    "verify --strict": {
        0: (("verify", "--strict", "."), NOTHING),
        4: (("verify", "--strict", "."), leave_a_swap),
    },
    "verify --repair": {
        0: ((*COMMANDS["verify --repair"], *DENSE, "."), NOTHING),
        1: ((*COMMANDS["verify --repair"], *DENSE, "."), lose_an_index),
        4: ((*COMMANDS["verify --repair"], *DENSE, "."), lose_the_topic_id),
    },
}
CELLS.update(
    {
        name: {
            status: ((*args[:-1], "--dry-run", args[-1]), happening)
            for status, (args, happening) in CELLS[name.rpartition(" ")[0]].items()
        }
        for name in (
            "rebuild-index --dry-run",
            "recover --dry-run",
            "resolve --dry-run",
            "snapshot --dry-run",
            "undelete --dry-run",
            "verify --repair --dry-run",
        )
    }
)
CELLS["verify its preview"] = CELLS.pop("verify --repair --dry-run")
CELLS["recover --dry-run"][1] = ((*COMMANDS["recover"], *DENSE, "--dry-run", "."), lose_an_index)


def table() -> dict[str, dict[int, str]]:
    """Return the table in the manual for each command, by status."""
    lines = MANUAL.read_text().splitlines()
    (begin,) = (at for at, line in enumerate(lines) if line.startswith("    Command  "))
    starts = [4, *(lines[begin].index(f" {status} ") + 1 for status in (0, 1)), 0]
    starts[-1] = lines[begin].rindex("4")
    found: dict[str, dict[int, str]] = {}
    command = row = ""
    for line in lines[begin + 1 :]:
        if not line.strip():
            break
        cells = [
            line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]
        if cells[0]:
            is_variant = line.startswith("      ")
            row = f"{command} {cells[0]}" if is_variant else cells[0]
            command = command if is_variant else row
            found[row] = dict.fromkeys((0, 1, 4), "")
        for status, said in zip((0, 1, 4), cells[1:], strict=True):
            found[row][status] = f"{found[row][status]} {said}".strip()
    return found


def test_the_table_in_the_manual_is_tested_completely() -> None:
    rows = table()
    assert {row.split()[0] for row in rows} == set(command_names())
    assert {
        row: {status for status, said in cells.items() if said != "-"}
        for row, cells in rows.items()
    } == {row: set(cells) for row, cells in CELLS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "expected"),
    # Those of query share a Spark session, and serve has to be stopped: see their tests.
    [
        (row, status)
        for row, cells in CELLS.items()
        for status in cells
        if row not in {"query", "serve"}
    ],
)
def test_each_status_in_the_table_occurs(row: str, expected: int, log_dir: Path) -> None:
    args, happening = CELLS[row][expected]
    happening(log_dir)
    assert run_kdump(args, log_dir).exit_status == expected


ARGUMENTS: Final = {
    "checkpoint": ("checkpoint", "rebuild"),
    "compact": COMPACT,
    "delete-records": DELETE,
    "erase": ERASE,
    "lookup": LOOKUP,
    "metadata": ("metadata", "show"),
    "move": ("move", "--balance"),
    "copy": ("copy", "nowhere"),
    "backup": ("backup", "create", "repository"),
    "export": ("export", "--out", "out"),
    "grep": ("grep", ""),
    "quorum": ("quorum", "show"),
    "report": ("report", "--out", "report.html"),
    "retain": RETAIN,
    "snapshot": ("snapshot", "rebuild"),
    "rewind": ("rewind", "--to", "2020-01-01"),
    "transplant": ("transplant", "--into", "."),
}


@pytest.mark.parametrize("command", sorted(set(command_names()) - {"completion", "explain"}))
def test_a_missing_path_is_8_and_a_usage_error_is_16(command: str, tmp_path: Path) -> None:
    args = ARGUMENTS.get(command, (command,))
    wrong_call = run_kdump([*args, "--no-such-option", "."], tmp_path)
    assert wrong_call.exit_status == 16
    missing = run_kdump([*args, f"missing/{0:020d}.log"], tmp_path)
    assert missing.exit_status == 8
