"""FIFOs, sockets and devices where files should be: never opened, and reported."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import pytest

from builders.in_process import Outcome, run_kdump
from builders.recovery import log_name
from builders.repair_cases import PARTITION, bad_batch_in_the_middle, clean_directory
from kdump.errors import ExitStatus
from kdump.formats import names

PATIENCE_SECONDS = 30
READING = ("verify", "ls", "info", "info --deep", "verify --quick", "checkpoint show")
WRITING = (
    "recover",
    "recover --policy salvage",
    "verify --repair",
    "resolve",
    "rebuild-index",
    "snapshot rebuild",
    "checkpoint rebuild",
    "compact --recover --topic *",
)
IN_PARTITION = (
    names.PARTITION_METADATA,
    names.LEADER_EPOCH_CHECKPOINT,
    log_name(120),
    log_name(60).replace(".log", ".index"),
    log_name(60).replace(".log", ".timeindex"),
    log_name(60).replace(".log", ".snapshot"),
    log_name(60).replace(".log", ".log.swap"),
)
IN_ROOT = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.CLEANER_OFFSET_CHECKPOINT,
    names.META_PROPERTIES,
    names.CLEAN_SHUTDOWN_MARKER,
)


def each_with_one(places: Sequence[str], commands: Sequence[str]) -> list[tuple[str, str]]:
    """Pair every place with one command, and every command with one place."""
    return [(place, commands[0]) for place in places] + [
        (places[0], command) for command in commands[1:]
    ]


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    """Fail a test that waits for a writer to a FIFO."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("something waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def _damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "logs"
    bad_batch_in_the_middle(path)
    return path


@pytest.fixture
def log_dir(tmp_path: Path, _damaged: Path) -> Path:
    return shutil.copytree(_damaged, tmp_path / "logs")


def kdump(command: str, *paths: Path) -> Outcome:
    return run_kdump([*command.split(), *map(str, paths)], Path("/"))


def put_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFSOCK | 0o600)


def put_device(path: Path) -> None:
    path.unlink(missing_ok=True)
    try:
        # A pseudo-terminal is the one device that blocks until somebody types.
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(5, 0))
    except PermissionError:
        pytest.skip("devices can only be made by root")


def put_link_to_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path.parent.parent / "pipe")
    path.symlink_to(path.parent.parent / "pipe")


def kinds(path: Path) -> dict[str, int]:
    return {
        str(each.relative_to(path)): stat.S_IFMT(each.lstat().st_mode)
        for each in sorted(path.rglob("*"))
    }


@pytest.mark.parametrize(("name", "command"), each_with_one(IN_PARTITION, READING))
def test_reading_commands_report_them_in_a_partition(
    log_dir: Path, name: str, command: str
) -> None:
    put_fifo(log_dir / PARTITION / name)
    outcome = kdump(command, log_dir)
    said = outcome.stdout + outcome.stderr
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert said.count(b"a FIFO, not a regular file; remove it") == 1
    assert f"{PARTITION}/{name}".encode() in said


@pytest.mark.parametrize(("name", "command"), each_with_one(IN_PARTITION, WRITING))
def test_a_partition_with_a_special_file_is_unchanged(
    log_dir: Path, name: str, command: str
) -> None:
    put_fifo(log_dir / PARTITION / name)
    had_lock = (log_dir / names.LOCK_FILE).exists()
    before = {path: path.read_bytes() for path in log_dir.glob(f"{PARTITION}/*") if path.is_file()}
    outcome = kdump(command, log_dir)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert stat.S_ISFIFO((log_dir / PARTITION / name).lstat().st_mode)
    assert before == {
        path: path.read_bytes() for path in log_dir.glob(f"{PARTITION}/*") if path.is_file()
    }
    assert had_lock or not (log_dir / names.LOCK_FILE).exists()


@pytest.mark.parametrize(("name", "command"), each_with_one(IN_ROOT, [*READING, *WRITING]))
def test_special_files_in_the_root_are_reported_and_never_opened(
    log_dir: Path, name: str, command: str
) -> None:
    put_fifo(log_dir / name)
    outcome = kdump(command, log_dir)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert b"not a regular file" in outcome.stdout + outcome.stderr
    assert stat.S_ISFIFO((log_dir / name).lstat().st_mode)


@pytest.mark.parametrize("name", IN_PARTITION)
def test_retention_leaves_such_a_partition_unchanged(tmp_path: Path, name: str) -> None:
    log_dir = clean_directory(tmp_path / "logs")
    put_fifo(log_dir / PARTITION / name)
    before = kinds(log_dir)
    outcome = kdump("retain --free 1M --topic orders --topic other", log_dir)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert {name: kind for name, kind in kinds(log_dir).items() if PARTITION in name} == {
        name: kind for name, kind in before.items() if PARTITION in name
    }


@pytest.mark.slow
@pytest.mark.parametrize("put", [put_fifo, put_socket, put_device, put_link_to_fifo])
@pytest.mark.parametrize(
    "name", [f"{PARTITION}/{names.PARTITION_METADATA}", names.META_PROPERTIES, names.LOCK_FILE]
)
def test_no_kind_of_special_file_is_opened(
    log_dir: Path, name: str, put: Callable[[Path], None]
) -> None:
    put(log_dir / name)
    for command in ("verify", "recover --dry-run", "recover"):
        assert kdump(command, log_dir).exit_status & (
            ExitStatus.OPERATIONAL_ERROR | ExitStatus.DAMAGE_LEFT
        )


@pytest.mark.parametrize("command", ["verify", "dump-segment", "rebuild-index"])
def test_a_special_file_given_as_a_path_is_not_opened(log_dir: Path, command: str) -> None:
    path = log_dir / PARTITION / log_name(120)
    put_fifo(path)
    assert kdump(command, path).exit_status == ExitStatus.OPERATIONAL_ERROR


def test_a_foreign_special_file_changes_nothing(tmp_path: Path) -> None:
    log_dir = clean_directory(tmp_path / "logs")
    # By a relative name: a socket's name has room for some hundred bytes only.
    with contextlib.chdir(log_dir), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("agent.sock")
    put_fifo(log_dir / PARTITION / "pipe")
    assert kdump("verify", log_dir).exit_status == ExitStatus.SOUND
    assert kdump("recover", log_dir).exit_status & ExitStatus.OPERATIONAL_ERROR == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("verify --server-properties FIFO logs", "FIFO"),
        ("identity --server-properties FIFO logs", "FIFO"),
        ("undelete --plan FIFO logs", "FIFO"),
        ("metadata plan --controller 1@host:1 --out plan FIFO", "FIFO"),
        ("metadata apply FIFO logs", "FIFO"),
        ("grep --schemas FIFO --value-format auto x logs", "FIFO"),
        ("export --out out logs", "out/_manifest.json"),
        ("export --out out logs", "out/_progress.jsonl"),
        ("copy logs out", "out/.kdump-copy.jsonl"),
    ],
)
def test_no_command_opens_a_special_file_in_the_place_of_a_document(
    log_dir: Path, command: str, name: str
) -> None:
    root = log_dir.parent
    (root / "out").mkdir()
    os.mkfifo(root / name)
    outcome = run_kdump(command.split(), root)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"{name}: a FIFO, not a regular file".encode() in outcome.stderr
