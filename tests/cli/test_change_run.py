"""The run that all commands share that change log directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.written_files import PARTITION, target_of, write_files
from kdump.apply import disk_space
from kdump.apply.lock import hold_locks
from kdump.apply.plan import TargetDirectory
from kdump.apply.runs import list_undos
from kdump.cli.output.events import EventFormat
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.shared.change_run import changing
from kdump.errors import ExitStatus, KdumpError
from kdump.jobs.writing import execution
from kdump.storage.local_disk import local
from kdump.target.target_file import Gone

FILE = "leader-epoch-checkpoint"


def arguments(*, dry_run: bool = False) -> RepairArguments:
    return RepairArguments(dry_run, keep_undo=True, output_format=EventFormat.TEXT, verbose=False)


@pytest.fixture
def target(tmp_path: Path) -> TargetDirectory:
    """A log directory that loses a file."""
    write_files(tmp_path, {FILE: b"content"})
    return target_of(tmp_path, {FILE: Gone()})


def test_a_run_changes_what_it_has_locked_and_names_the_command(target: TargetDirectory) -> None:
    with changing("recover", [local(target.path)], arguments()) as run:
        with pytest.raises(KdumpError), hold_locks([target.path]):
            pass
        run.apply([target])

    assert not (target.path / PARTITION / FILE).exists()
    assert [each.command for each in list_undos(target.path)] == ["recover"]
    assert run.changed(["result"]) == [("result", run.done[0])]


def test_a_preview_says_that_records_would_be_lost_rather_than_repaired(
    target: TargetDirectory,
) -> None:
    lost = ExitStatus.REPAIRED | ExitStatus.DAMAGE_LEFT
    with changing("recover", [local(target.path)], arguments(dry_run=True)) as run:
        run.apply([target])

    assert (target.path / PARTITION / FILE).exists()
    assert run.status(lost) == ExitStatus.DAMAGE_LEFT


def test_a_preview_names_the_space_without_which_the_run_is_refused(
    target: TargetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "free_bytes_at", lambda _: 0)
    with changing("recover", [local(target.path)], arguments(dry_run=True)) as run:
        run.apply([target])
    (previewed,) = run.done
    assert previewed.needed_bytes > 0

    needed = f"needs {previewed.needed_bytes} bytes of free space, has 0"
    with (
        pytest.raises(KdumpError, match=needed),
        changing("recover", [local(target.path)], arguments()) as run,
    ):
        run.apply([target])


def test_a_signal_after_the_changes_says_that_they_are_made(
    target: TargetDirectory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As between the rounds of a command that changes directories one after another."""
    other = tmp_path_factory.mktemp("other")
    write_files(other, {FILE: b"content"})

    def change_and_stop() -> None:
        with changing("move", [local(target.path), local(other)], arguments()) as run:
            run.apply([target])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        change_and_stop()
    assert stopped.value.__notes__ == [
        f"{target.path}: 1 change made; to undo: kdump undo {target.path} 1",
        f"{other}: nothing was changed",
        "run the command again: it does what is left to do",
    ]


def test_a_second_round_that_fails_does_not_say_that_nothing_has_been_changed(
    target: TargetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with changing("transplant", [local(target.path)], arguments()) as run:
        run.apply([target])
        write_files(target.path, {FILE: b"content"})
        monkeypatch.setattr(disk_space, "free_bytes_at", lambda _: 0)
        with pytest.raises(KdumpError, match="nothing more has been changed"):
            run.apply([target_of(target.path, {FILE: Gone()})])


def test_a_signal_while_old_bytes_are_overwritten_says_how_to_finish(
    target: TargetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def discard(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(execution, "discard", discard)
    without_undo = RepairArguments(
        dry_run=False, keep_undo=False, output_format=EventFormat.TEXT, verbose=False
    )
    with (
        pytest.raises(KeyboardInterrupt) as stopped,
        changing("erase", [local(target.path)], without_undo, overwrites=True) as run,
    ):
        run.apply([target])
    assert stopped.value.__notes__[0] == (
        f"{target.path}: all changes are made, but what they replace is not overwritten yet; run"
        " 'kdump erase --finish'"
    )


def test_a_report_lists_each_change_and_how_to_undo_it(
    target: TargetDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with changing("recover", [local(target.path)], arguments()) as run:
        run.apply([target])
    with run.report() as printer:
        status = run.emit_plans(printer, run.operations())

    assert status == ExitStatus.REPAIRED
    assert "1 change made; to undo: kdump undo" in capsys.readouterr().out
