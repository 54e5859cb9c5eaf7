"""Directories of partitions are created, renamed and removed; a stop anywhere loses nothing."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.directory_cases import (
    CHANGED,
    CREATED,
    LOG,
    OLD,
    STRAY,
    content_after,
    target_of,
    write_log_directory,
)
from builders.log_dir_trees import original_of, seen_by_broker
from builders.samples import at_some_or_all, moments_of
from builders.trees import Seen, contents_of
from builders.volatile_files import VolatileFiles
from kdump.apply.apply import apply_plan
from kdump.apply.directory_changes import (
    CreatedDirectory,
    FileStream,
    NewFile,
    RemovedDirectory,
    RenamedDirectory,
    StreamedFrom,
    aside_name,
)
from kdump.apply.files import DISK, Files, Metadata
from kdump.apply.interrupted_runs import finish_interrupted, unfinished
from kdump.apply.journal_preview import Restored
from kdump.apply.plan import TargetDirectory, make_plan
from kdump.apply.runs import list_undos
from kdump.apply.undo import discard, preview_undo, undo
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.formats.names import is_accepted_name
from kdump.target.target_file import NewBytes

undo_or_not = pytest.mark.parametrize("keep_undo", [True, False], ids=["undo", "no-undo"])
unsynced_or_not = pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])


class Machine:
    """A log directory that changes, and a machine that may stop meanwhile."""

    def __init__(self, path: Path, *, keep_undo: bool) -> None:
        self.keep_undo = keep_undo
        self.path = path / "logs"
        self._original = write_log_directory(path / "original")
        shutil.copytree(self._original, self.path)
        self.attic = path / "attic"
        self.attic.mkdir()
        self.before = original_of(self.path)
        self.after = content_after(self.path, keep_undo=keep_undo)

    def restart(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._original, self.path)

    def apply(self, files: Files = DISK) -> str | None:
        plan = make_plan(target_of(self.path))
        return apply_plan(plan, keep_undo=self.keep_undo, command="kdump move", files=files)

    def volatile(self) -> VolatileFiles:
        return VolatileFiles(self.path, self.attic)

    def stops(self, work: Callable[[Files], object]) -> range:
        return range(len(self.volatile().operations_of(work)))

    def stop(self, work: Callable[[Files], object], at: int, *, unsynced: bool) -> None:
        self.volatile().stop_in(work, at, unsynced=unsynced)

    def finish_or_run_again(self) -> None:
        is_begun = finish_interrupted(self.path) is not None or list_undos(self.path)
        if not is_begun and seen_by_broker(self.path) != self.after:
            self.apply()

    def original(self) -> dict[str, Seen]:
        return original_of(self.path)


def live(path: Path) -> Iterator[Path]:
    """Yield the directories that a broker uses, after checking that it accepts them all."""
    for directory in path.iterdir():
        if directory.is_dir():
            assert is_accepted_name(directory.name)
            if not directory.name.endswith(("-delete", "-stray")):
                yield directory


def require_sound(machine: Machine, at: int) -> None:
    """Check that a broker finds every partition either as it was or as it will be."""
    whole = {
        OLD: {"before"},
        CREATED: {"after"},
        "users-0": {"after"},
        CHANGED: {"before", "after"},
    }
    before = {name: each.content for name, each in machine.before.items()}
    found = set()
    for directory in live(machine.path):
        now = {f"{directory.name}/{name}": each for name, each in contents_of(directory).items()}
        states = []
        for state, content in (("before", before), ("after", machine.after)):
            prefix = f"{directory.name}/"
            if now == {k: v for k, v in content.items() if k.startswith(prefix)}:
                states.append(state)
        assert whole[directory.name].intersection(states), (at, directory.name)
        found.add(directory.name)
    # The records of each partition are in a directory that a broker uses, or does not delete.
    kept = {each.name.split("-0")[0] for each in machine.path.iterdir() if each.is_dir()}
    assert {"users", "other"} <= kept, at
    if machine.keep_undo:
        assert "orders" in kept
    if CREATED in found:
        starts = (machine.path / names.LOG_START_OFFSET_CHECKPOINT).read_text()
        assert "events 0 1" in starts, at


@undo_or_not
def test_a_plan_reaches_its_target_state_and_its_undo_the_original(
    quick_path: Path, keep_undo: bool
) -> None:
    machine = Machine(quick_path, keep_undo=keep_undo)

    undo_id = machine.apply()

    assert seen_by_broker(machine.path) == machine.after
    if keep_undo:
        assert [each.undo_id for each in list_undos(machine.path)] == [undo_id]
        undo(machine.path)
        assert machine.original() == machine.before
    assert [*machine.path.glob("*kdump*")] == []


@pytest.mark.slow
@at_some_or_all
@unsynced_or_not
@undo_or_not
def test_a_run_stopped_anywhere_is_finished_and_undone(
    quick_path: Path, keep_undo: bool, unsynced: bool, is_all: bool
) -> None:
    machine = Machine(quick_path, keep_undo=keep_undo)
    for at in moments_of(machine.stops(machine.apply), is_all=is_all):
        machine.restart()
        machine.stop(machine.apply, at, unsynced=unsynced)
        require_sound(machine, at)
        unfinished(machine.path)

        machine.finish_or_run_again()

        assert seen_by_broker(machine.path) == machine.after, at
        if keep_undo:
            undo(machine.path)
            assert machine.original() == machine.before, at
        assert [*machine.path.glob("*kdump*")] == [], at


@pytest.mark.slow
@at_some_or_all
@unsynced_or_not
def test_a_run_stopped_anywhere_can_be_undone(
    quick_path: Path, unsynced: bool, is_all: bool
) -> None:
    machine = Machine(quick_path, keep_undo=True)
    for at in moments_of(machine.stops(machine.apply), is_all=is_all):
        machine.restart()
        machine.stop(machine.apply, at, unsynced=unsynced)

        if list_undos(machine.path):
            undo(machine.path)
        else:
            finish_interrupted(machine.path)

        assert machine.original() == machine.before, at
        assert [*machine.path.glob("*kdump*")] == [], at


@pytest.mark.slow
@at_some_or_all
@unsynced_or_not
def test_an_undo_stopped_anywhere_is_finished_by_the_next_run(
    quick_path: Path, unsynced: bool, is_all: bool
) -> None:
    machine = Machine(quick_path, keep_undo=True)

    def take_back(files: Files) -> None:
        undo(machine.path, files=files)

    machine.apply()
    for at in moments_of(machine.stops(take_back), is_all=is_all):
        machine.restart()
        machine.apply()
        machine.stop(take_back, at, unsynced=unsynced)
        require_sound(machine, at)

        finish_interrupted(machine.path)
        if list_undos(machine.path):
            undo(machine.path)

        assert machine.original() == machine.before, at
        assert [*machine.path.glob("*kdump*")] == [], at


@pytest.mark.slow
@at_some_or_all
@undo_or_not
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EIO])
def test_a_failing_operation_leaves_the_original_or_can_be_finished(
    quick_path: Path, keep_undo: bool, failure: int, is_all: bool
) -> None:
    machine = Machine(quick_path, keep_undo=keep_undo)
    for at in moments_of(machine.stops(machine.apply), is_all=is_all):
        machine.restart()
        files = machine.volatile()
        files.fail_at, files.failure = at, failure
        said = ""
        try:
            machine.apply(files)
        except KdumpError as failed:
            said = str(failed)
        files.forget_attic()
        require_sound(machine, at)
        if "partly changed" in said:
            assert not keep_undo
            finish_interrupted(machine.path)
        if not said or "partly changed" in said:
            assert seen_by_broker(machine.path) == machine.after, at
        else:
            assert "nothing has been changed" in said or "as it was" in said
            assert machine.original() == machine.before, at


def test_discarding_the_undo_deletes_the_directory_that_it_keeps(quick_path: Path) -> None:
    machine = Machine(quick_path, keep_undo=True)
    undo_id = machine.apply()
    assert list_undos(machine.path)[0].kept_bytes >= 6000

    assert [each.undo_id for each in discard(machine.path)] == [undo_id]

    assert [*machine.path.glob("*kdump*")] == []
    assert (machine.path / CREATED / LOG).exists()


@pytest.mark.slow
def test_a_discarding_stopped_anywhere_can_be_repeated_or_the_run_undone(quick_path: Path) -> None:
    machine = Machine(quick_path, keep_undo=True)

    def throw_away(files: Files) -> None:
        discard(machine.path, files=files)

    machine.apply()
    for at in machine.stops(throw_away):
        for way in (discard, undo):
            machine.restart()
            machine.apply()
            machine.stop(throw_away, at, unsynced=False)
            if list_undos(machine.path):
                way(machine.path)
                if way is undo:
                    assert machine.original() == machine.before, at
                else:
                    assert [*machine.path.glob("*kdump*")] == []
            # Without a journal, only what a broker deletes may be left.
            left = [each for each in machine.path.glob("?*.kdump*") if each.is_dir()]
            assert all(each.name.endswith("-delete") for each in left), at


def test_the_preview_of_an_undo_names_directories(quick_path: Path) -> None:
    machine = Machine(quick_path, keep_undo=True)
    machine.apply()

    _, restored = preview_undo(machine.path)

    directories = [each for each in restored if each.path.endswith("/")]
    assert {(each.path, each.is_removed) for each in directories} == {
        (f"{CREATED}/", True),
        ("users-0/", True),
        (f"{STRAY}/", False),
        (f"{OLD}/", False),
        ("orders-0.kdump-1-old-0-stray/", True),
    }
    assert Restored(f"{OLD}/", False, 6006) in restored


def test_the_rows_of_a_plan_name_directories(quick_path: Path) -> None:
    machine = Machine(quick_path, keep_undo=True)
    plan = make_plan(target_of(machine.path))
    rows = [row for row in plan.rows() if row["action"].endswith("-directory")]
    assert [(row["action"], row["source"], row["file"]) for row in rows] == [
        ("create-directory", None, CREATED),
        ("remove-directory", None, OLD),
        ("rename-directory", STRAY, "users-0"),
    ]
    described = [*plan.describe()]
    assert f"{machine.path}: rename {STRAY}/ to users-0/" in described


@pytest.mark.parametrize("path", [f"users-0/{LOG}", f"{CREATED}/{LOG}"])
def test_an_undo_is_refused_if_a_moved_directory_has_changed_since(
    quick_path: Path, path: str
) -> None:
    machine = Machine(quick_path, keep_undo=True)
    machine.apply()
    with (machine.path / path).open("ab") as file:
        file.write(b"more")
    before = machine.original()
    with pytest.raises(KdumpError, match=f"{path} has changed"):
        undo(machine.path)
    assert machine.original() == before


def one_file(content: bytes = b"x") -> CreatedDirectory:
    return CreatedDirectory({LOG: NewFile(NewBytes(content))})


def test_a_directory_that_exists_is_never_replaced(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    for change in (one_file(), RenamedDirectory(STRAY)):
        with pytest.raises(KdumpError, match=r"orders-0: exists already"):
            make_plan(TargetDirectory(path, (), {}, directories={OLD: change}))


@pytest.mark.parametrize("change", [RenamedDirectory("gone-1"), RemovedDirectory()])
def test_a_missing_directory_is_refused(
    quick_path: Path, change: RenamedDirectory | RemovedDirectory
) -> None:
    path = write_log_directory(quick_path / "logs")
    with pytest.raises(KdumpError, match=r"gone-1: is gone"):
        make_plan(TargetDirectory(path, (), {}, directories={"gone-1": change}))


def test_a_link_to_a_directory_is_neither_renamed_nor_removed(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    elsewhere = quick_path / "elsewhere"
    elsewhere.mkdir()
    (path / "link-0").symlink_to(elsewhere)
    for name, change in (("new-0", RenamedDirectory("link-0")), ("link-0", RemovedDirectory())):
        with pytest.raises(KdumpError, match="is a symbolic link"):
            make_plan(TargetDirectory(path, (), {}, directories={name: change}))


def test_a_directory_inside_a_partition_stops_its_removal(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    (path / OLD / "mine").mkdir()
    with pytest.raises(KdumpError, match="mine: is a directory"):
        make_plan(TargetDirectory(path, (), {}, directories={OLD: RemovedDirectory()}))


def test_names_that_a_broker_refuses_are_refused(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    with pytest.raises(ValueError, match="a broker would refuse"):
        make_plan(TargetDirectory(path, (), {}, directories={"aside": RenamedDirectory(OLD)}))


def test_a_long_topic_is_cut_short_while_its_directory_is_filled(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    name = "t" * 249 + "-0"
    plan = make_plan(TargetDirectory(path, (), {}, directories={name: one_file()}))
    apply_plan(plan, keep_undo=True, command="kdump transplant")
    assert (path / name / LOG).read_bytes() == b"x"
    undo(path)
    assert not (path / name).exists()


def test_new_files_get_the_owner_and_mode_of_the_log_directory_or_those_given(
    quick_path: Path,
) -> None:
    path = write_log_directory(quick_path / "logs")
    path.chmod(0o750)
    given = Metadata(0o600, path.stat().st_uid, path.stat().st_gid, 5, 7_000_000_000)
    files = {"a": NewFile(NewBytes(b"a")), "b": NewFile(NewBytes(b"b"), given)}
    plan = make_plan(TargetDirectory(path, (), {}, directories={CREATED: CreatedDirectory(files)}))
    apply_plan(plan, keep_undo=False, command="kdump transplant")
    modes = {name: (path / CREATED / name).stat().st_mode & 0o777 for name in (".", "a", "b")}
    assert modes == {".": 0o750, "a": 0o640, "b": 0o600}
    assert (path / CREATED / "b").stat().st_mtime_ns == 7_000_000_000


def test_a_stream_is_changed_on_the_way(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    source = path / OLD / LOG

    def upper(pieces: Iterator[bytes]) -> Iterator[bytes]:
        return (piece.upper() for piece in pieces)

    files = {LOG: NewFile(StreamedFrom(FileStream.of(source, upper)))}
    plan = make_plan(TargetDirectory(path, (), {}, directories={CREATED: CreatedDirectory(files)}))
    apply_plan(plan, keep_undo=False, command="kdump transplant")
    assert (path / CREATED / LOG).read_bytes() == source.read_bytes().upper()


def shorter(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return (piece[1:] for piece in pieces)


def failing(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield next(pieces)
    raise OSError(errno.EIO, "Input/output error", "source")


@pytest.mark.parametrize("changed", [shorter, failing])
def test_a_stream_that_does_not_give_its_content_changes_nothing(
    quick_path: Path, changed: Callable[[Iterator[bytes]], Iterator[bytes]]
) -> None:
    path = write_log_directory(quick_path / "logs")
    files = {LOG: NewFile(StreamedFrom(FileStream.of(path / OLD / LOG, changed)))}
    plan = make_plan(TargetDirectory(path, (), {}, directories={CREATED: CreatedDirectory(files)}))
    before = original_of(path)
    with pytest.raises(KdumpError, match="nothing has been changed"):
        apply_plan(plan, keep_undo=True, command="kdump transplant")
    assert original_of(path) == before


def test_a_source_that_changes_meanwhile_is_not_copied(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    source = path / OLD / LOG
    files = {LOG: NewFile(StreamedFrom(FileStream.of(source)))}
    plan = make_plan(TargetDirectory(path, (), {}, directories={CREATED: CreatedDirectory(files)}))
    source.write_bytes(b"other")
    with pytest.raises(KdumpError, match="was changed while it was read; nothing has been changed"):
        apply_plan(plan, keep_undo=True, command="kdump transplant")
    assert not (path / CREATED).exists()


def test_a_disk_that_returns_other_data_is_noticed(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log_directory(quick_path / "logs")
    files = {LOG: NewFile(StreamedFrom(FileStream.of(path / OLD / LOG)))}
    plan = make_plan(TargetDirectory(path, (), {}, directories={CREATED: CreatedDirectory(files)}))

    class Lying(type(DISK)):  # type: ignore[misc]
        def create(self, path: Path, content: object) -> None:
            pieces = list(content)  # type: ignore[call-overload]
            if path.name.endswith("-new-0"):
                pieces = [piece[:-1] + b"!" for piece in pieces]
            super().create(path, pieces)

    with pytest.raises(KdumpError, match="returns other data than was written; nothing has been"):
        apply_plan(plan, keep_undo=True, command="kdump transplant", files=Lying())
    assert not (path / CREATED).exists()


def test_the_metadata_log_moves_to_a_name_that_kafka_leaves_alone(quick_path: Path) -> None:
    path = write_log_directory(quick_path / "logs")
    metadata = path / "__cluster_metadata-0"
    metadata.mkdir()
    aside = aside_name(metadata)
    assert aside == aside_name(metadata)
    parsed = names.parse_partition_directory_name(aside)
    assert (parsed.topic, parsed.state) == ("__cluster_metadata", names.PartitionState.STRAY)
    plan = make_plan(
        TargetDirectory(path, (), {}, directories={aside: RenamedDirectory(metadata.name)})
    )
    apply_plan(plan, keep_undo=True, command="kdump metadata apply")
    assert (path / aside).is_dir()
    undo(path)
    assert metadata.is_dir()
