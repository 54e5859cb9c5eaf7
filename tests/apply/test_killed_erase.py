"""An erase that is killed is finished by the next run, or a broker can be started."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

import pytest

from builders.compactable_directories import plain_directory
from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, kinds_of_changes
from builders.loading import Clock, LoaderServer
from builders.read_records import ReadRecord, all_records
from builders.samples import at_some_or_each_kind, moments_of_kinds
from builders.trees import contents_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.names import KDUMP_PREFIX
from kdump.repair.erase.erased_list import FILE_NAME

SAMPLES = 12
PARTITIONS = ("a-0", "b-0")


@pytest.fixture
def original(quick_path: Path) -> Path:
    """Return a clean log directory of two partitions."""
    return plain_directory(quick_path / "original", ("a", "b"), segments=5)


def args_for(original: Path) -> tuple[str, ...]:
    """Name two keys that many segments have."""
    keys = sorted({each.key for each in all_records(original / "a-0") if each.key})
    return ("--topic=*", "--yes", *(f"--key={each.decode()}" for each in keys[:2]))


def kdump(command: str, log_dir: Path, *args: str) -> int:
    return run_kdump([command, str(log_dir), *args], Path.cwd()).exit_status


@pytest.mark.slow
@pytest.mark.parametrize("undo", ["--undo", "--no-undo"])
def test_the_next_run_has_the_same_result_and_undo_gives_every_byte_back(
    original: Path, killable: KillableKdump, undo: str
) -> None:
    args = (*args_for(original), undo)
    before = contents_of(original)
    whole = original.with_name("whole")
    shutil.copytree(original, whole)
    assert kdump("erase", whole, *args) == 1
    logs = logs_in(whole)
    assert logs != logs_in(original)

    for log_dir in killable.killed_at(original, "erase", args, SAMPLES):
        assert kdump("erase", log_dir, *args) in (0, 1)
        assert logs_in(log_dir) == logs
        assert not list(log_dir.glob("*/*.cleaned"))
        if undo == "--undo":
            assert kdump("undo", log_dir) == 0
            found = contents_of(log_dir)
            found.pop(names.LOCK_FILE, None)
            assert found == before


def logs_in(log_dir: Path) -> dict[str, bytes]:
    found = contents_of(log_dir)
    return {name: each for name, each in found.items() if name.partition("/")[0] in PARTITIONS}


@pytest.mark.differential
def test_a_broker_finds_each_segment_as_it_was_or_without_the_records(
    original: Path, killable: KillableKdump, loader_server: LoaderServer
) -> None:
    args = args_for(original)
    named = {each.removeprefix("--key=").encode() for each in args if each.startswith("--key=")}
    expected = {name: all_records(original / name) for name in PARTITIONS}
    for log_dir in killable.killed_at(original, "erase", args, SAMPLES):
        assert loader_server.load(log_dir, IndexSettings(), Clock(), whole=True) == {}

        for name, before in expected.items():
            found = all_records(log_dir / name)
            assert [each for each in found if each.key not in named] == others(before, named)
            assert set(found) <= set(before)


def others(records: list[ReadRecord], named: set[bytes]) -> list[ReadRecord]:
    return [each for each in records if each.key not in named]


@pytest.mark.slow
@at_some_or_each_kind
def test_a_killed_finish_leaves_no_certificate_or_nothing_that_it_denies(
    original: Path, killable: KillableKdump, is_each_kind: bool
) -> None:
    args = args_for(original)
    keys = [each.removeprefix("--key=").encode() for each in args if each.startswith("--key=")]
    assert kdump("erase", original, *args) == 1
    certificate = original.with_name("erased.json")
    finish = ("--finish", f"--certificate={certificate}", *args[2:])

    log_dir = original.with_name("logs")
    words = ["erase", str(log_dir), *finish]

    def again() -> list[Path]:
        """Copy the directory; return other names for what has to be overwritten."""
        shutil.rmtree(log_dir, ignore_errors=True)
        shutil.copytree(original, log_dir)
        certificate.unlink(missing_ok=True)
        return [*log_dir.glob(f"{KDUMP_PREFIX}*-old-*"), log_dir / FILE_NAME]

    def require_gone(blocks: Sequence[BufferedReader]) -> None:
        assert certificate.exists()
        assert not any(key in each for key in keys for each in contents_of(log_dir).values())
        assert not (log_dir / FILE_NAME).exists()
        assert not list(log_dir.glob(f"{KDUMP_PREFIX}*"))
        assert not any(each.seek(0) or any(each.read()) for each in blocks)

    again()
    kinds = kinds_of_changes(lambda: run_kdump(words, Path.cwd()))
    for at in moments_of_kinds(kinds, is_each_kind=is_each_kind, samples=SAMPLES):
        with contextlib.ExitStack() as stack:
            # An open file outlives its name, and shows what its blocks have.
            blocks = [stack.enter_context(path.open("rb")) for path in again()]
            assert killable.run_and_kill(words, at) == -signal.SIGKILL
            if certificate.exists():
                require_gone(blocks)
                certificate.unlink()
            assert kdump("erase", log_dir, *finish) == 0
            require_gone(blocks)
        assert kdump("verify", log_dir) == 0
