"""A plan has the differences to the target state, in an order that is safe at every point."""

from __future__ import annotations

import cProfile
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.trees import tree_of
from builders.written_files import plan_of, target_of, write_files
from kdump.apply.plan import Plan, TargetDirectory, TargetPartition, make_plan
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    TargetFile,
)

ZERO, FIVE, NINE = (f"{base:020d}" for base in (0, 5, 9))


def told(plan: Plan) -> list[str]:
    return [operation.describe() for operation in plan.operations]


def test_a_directory_with_its_target_state_needs_no_operation(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.log": b"1234", "b": b"x"})
    plan = plan_of(
        tmp_path,
        {"a.log": KeptUpTo(4), "b": NewBytes(b"x"), "c": Gone(), "d": Gone()},
        {"nothing.tmp": Gone()},
    )
    assert plan.is_empty
    assert plan.operations == ()
    assert (plan.lost_bytes, plan.needed_bytes) == (0, 0)


def test_making_a_plan_changes_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234"})
    before = tree_of(tmp_path)
    plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(1), "new": NewBytes(b"x")})
    assert tree_of(tmp_path) == before


def test_a_plan_has_the_files_that_change_as_they_were_before(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234", f"{FIVE}.log": b"56", "b": b"x"})
    plan = plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(1), "b": NewBytes(b"y")})
    (changed,) = plan.partitions
    (changed.path / f"{ZERO}.log").write_bytes(b"1")
    (changed.path / "b").unlink()
    assert changed.states[f"{ZERO}.log"].size_bytes == 4
    assert changed.states["b"].size_bytes == 1
    assert set(changed.states) == {f"{ZERO}.log", f"{FIVE}.log", "b"}


def test_an_invalid_swap_is_removed_before_the_cleaned_file_that_makes_it_invalid(
    tmp_path: Path,
) -> None:
    leftovers = [f"{FIVE}.log.swap", f"{FIVE}.index.cleaned", f"{ZERO}.log.deleted"]
    write_files(tmp_path, dict.fromkeys(leftovers, b"x"))
    plan = plan_of(tmp_path, dict.fromkeys(leftovers, Gone()))
    assert told(plan) == [f"remove {name}" for name in leftovers]


def test_segments_that_a_swap_replaces_are_removed_before_its_rename(tmp_path: Path) -> None:
    files = [f"{base}.{kind}" for base in (ZERO, FIVE) for kind in ("log", "index", "snapshot")]
    write_files(tmp_path, dict.fromkeys([*files, f"{ZERO}.log.swap", f"{ZERO}.index.swap"], b"x"))
    plan = plan_of(
        tmp_path,
        {
            **{f"{FIVE}.{kind}": Gone() for kind in ("log", "index", "snapshot")},
            f"{ZERO}.log": RenamedFrom(f"{ZERO}.log.swap", 1),
            f"{ZERO}.index": RenamedFrom(f"{ZERO}.index.swap", 1),
            f"{ZERO}.log.swap": Gone(),
            f"{ZERO}.index.swap": Gone(),
            f"{ZERO}.snapshot": Gone(),
        },
    )
    assert told(plan) == [
        f"remove {FIVE}.log",
        f"remove {FIVE}.index",
        f"remove {FIVE}.snapshot",
        f"remove {ZERO}.snapshot",
        f"rename {ZERO}.log.swap to {ZERO}.log",
        f"rename {ZERO}.index.swap to {ZERO}.index",
    ]


def test_segments_are_removed_from_the_last_one_down_and_their_logs_first(tmp_path: Path) -> None:
    gone = [f"{base}.{kind}" for base in (NINE, FIVE) for kind in ("log", "index", "timeindex")]
    write_files(tmp_path, dict.fromkeys([*gone, f"{ZERO}.log", f"{ZERO}.index"], b"1234"))
    plan = plan_of(
        tmp_path,
        {
            **dict.fromkeys(gone, Gone()),
            f"{ZERO}.index": KeptUpTo(0),
            f"{ZERO}.log": KeptUpTo(2),
        },
    )
    assert told(plan) == [
        *(f"remove {name}" for name in gone),
        f"truncate {ZERO}.log to 2 bytes",
        f"truncate {ZERO}.index to 0 bytes",
    ]


def test_segments_at_the_start_of_a_log_are_removed_from_the_first_one_up(tmp_path: Path) -> None:
    gone = [f"{base}.{kind}" for base in (ZERO, FIVE) for kind in ("log", "index", "snapshot")]
    write_files(tmp_path, dict.fromkeys([*gone, f"{NINE}.log"], b"1234"))
    plan = plan_of(tmp_path, {name: Gone() for name in gone})
    assert told(plan) == [f"remove {name}" for name in gone]


def test_segments_can_be_removed_at_both_ends_of_a_log(tmp_path: Path) -> None:
    bases = [f"{base:020d}" for base in range(6)]
    write_files(tmp_path, {f"{base}.log": b"1" for base in bases})
    plan = plan_of(tmp_path, {f"{bases[at]}.log": Gone() for at in (0, 1, 4, 5)})
    assert told(plan) == [f"remove {bases[at]}.log" for at in (0, 1, 5, 4)]


def test_an_empty_segment_is_created_before_the_segments_that_it_replaces_are_removed(
    tmp_path: Path,
) -> None:
    gone = [f"{base}.{kind}" for base in (ZERO, FIVE) for kind in ("log", "index")]
    new = [f"{NINE}.{kind}" for kind in ("log", "index", "timeindex")]
    write_files(tmp_path, dict.fromkeys(gone, b"1234"))
    target: dict[str, TargetFile] = {f"{NINE}.snapshot": NewBytes(b"x")}
    target |= dict.fromkeys(gone, Gone())
    target |= dict.fromkeys(new, NewBytes(b""))
    plan = plan_of(tmp_path, target)
    assert told(plan) == [
        *(f"create {name}: 0 bytes" for name in new),
        *(f"remove {name}" for name in gone),
        f"create {NINE}.snapshot: 1 byte",
    ]


def test_an_empty_segment_before_removed_segments_is_created_after_their_removal(
    tmp_path: Path,
) -> None:
    write_files(tmp_path, {f"{FIVE}.log": b"1234", f"{NINE}.log": b""})
    target: dict[str, TargetFile] = {f"{ZERO}.log": NewBytes(b"")}
    target |= {f"{FIVE}.log": Gone(), f"{NINE}.log": Gone()}
    assert told(plan_of(tmp_path, target)) == [
        f"remove {NINE}.log",
        f"remove {FIVE}.log",
        f"create {ZERO}.log: 0 bytes",
    ]


def test_interim_content_of_the_root_is_written_before_partitions_change(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234"})
    (tmp_path / "a").write_bytes(b"old")
    interim = {name: NewBytes(b"meanwhile") for name in ("a", "b", "c")}
    target = target_of(tmp_path, {f"{ZERO}.log": KeptUpTo(2)}, {"c": NewBytes(b"meanwhile")})
    plan = make_plan(replace(target, interim=interim))
    assert told(plan) == [
        "replace a: 9 bytes",
        "create b: 9 bytes",
        "create c: 9 bytes",
        f"truncate {ZERO}.log to 2 bytes",
        "replace a: 3 bytes",
        "remove b",
    ]
    assert plan.lost_bytes == 5


def test_without_a_change_to_a_partition_there_is_no_interim_content(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234"})
    target = replace(target_of(tmp_path, {}, {"b": NewBytes(b"x")}), interim={"a": NewBytes(b"y")})
    assert told(make_plan(target)) == ["create b: 1 byte"]


def test_files_that_make_a_broker_rebuild_indexes_are_corrected_last(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"", f"{FIVE}.log": b"", f"{FIVE}.index": b"old"})
    new = NewBytes(b"new")
    kinds = ("index", "timeindex", "txnindex")
    plan = plan_of(
        tmp_path,
        {f"{base}.{kind}": new for base in (ZERO, FIVE) for kind in kinds}
        | {"leader-epoch-checkpoint": new},
    )
    order = [operation.name for operation in plan.operations]
    assert order[0] == "leader-epoch-checkpoint"
    assert order.index(f"{FIVE}.index") < order.index(f"{FIVE}.txnindex")
    assert order[-1] == f"{ZERO}.index"


def test_all_files_of_a_rewritten_segment_are_replaced_together(tmp_path: Path) -> None:
    files = {f"{ZERO}.{kind}": b"12345678" for kind in ("log", "index", "timeindex", "txnindex")}
    write_files(tmp_path, files | {f"{FIVE}.log": b"abcdefgh"})

    def joined(name: str) -> JoinedFrom:
        return JoinedFrom((CopiedFrom(name, 0, 2), CopiedFrom(name, 4, 8)))

    plan = plan_of(
        tmp_path,
        {
            f"{ZERO}.log": joined(f"{ZERO}.log"),
            f"{ZERO}.index": NewBytes(b""),
            f"{ZERO}.timeindex": Kept(),
            f"{FIVE}.log": joined(f"{FIVE}.log"),
            "damaged-it": CopiedFrom(f"{ZERO}.log", 2, 4),
        },
    )
    assert [(operation.name, operation.rewrite) for operation in plan.operations] == [
        ("damaged-it", None),
        (f"{ZERO}.log", 0),
        (f"{ZERO}.index", 0),
        (f"{ZERO}.timeindex", 0),
        (f"{ZERO}.txnindex", 0),
        (f"{FIVE}.log", 1),
    ]


def test_the_parts_of_a_split_segment_are_replaced_together(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"12345678", f"{ZERO}.index": b"i"})
    plan = plan_of(
        tmp_path,
        {
            f"{ZERO}.log": KeptUpTo(3),
            f"{FIVE}.log": CopiedFrom(f"{ZERO}.log", 3, 8),
            f"{FIVE}.index": NewBytes(b"j"),
        },
    )
    assert {operation.rewrite for operation in plan.operations} == {0}
    assert plan.lost_bytes == 0


def test_a_staged_segment_replaces_those_up_to_the_next_kept_segment(tmp_path: Path) -> None:
    ready = {f"{ZERO}.log.cleaned": b"ab", f"{ZERO}.index.cleaned": b""}
    old = {f"{base}.{kind}": b"old" for base in (ZERO, FIVE) for kind in ("log", "index")}
    write_files(tmp_path, {**ready, **old, f"{NINE}.log": b"z"})
    plan = plan_of(
        tmp_path,
        {
            f"{ZERO}.log": RenamedFrom(f"{ZERO}.log.cleaned", 2),
            f"{ZERO}.index": RenamedFrom(f"{ZERO}.index.cleaned", 0),
            f"{FIVE}.log": Gone(),
            f"{FIVE}.index": Gone(),
        },
    )
    assert [(operation.kind.value, operation.name) for operation in plan.operations] == [
        ("rename", f"{ZERO}.log"),
        ("rename", f"{ZERO}.index"),
        ("remove", f"{FIVE}.log"),
        ("remove", f"{FIVE}.index"),
    ]
    assert {operation.rewrite for operation in plan.operations} == {0}


@pytest.mark.parametrize("new", [1, 4], ids=["all into one", "four into one"])
def test_the_work_of_replacing_segments_grows_with_their_number(tmp_path: Path, new: int) -> None:
    calls = []
    for count in (200, 400):
        bases = [f"{base:020d}" for base in range(count)]
        into = bases[:: new if new > 1 else count]
        root = tmp_path / f"of-{count}"
        root.mkdir()
        write_files(root, {f"{base}.log": b"old" for base in bases})
        write_files(root, {f"{base}.log.cleaned": b"ab" for base in into})
        target: dict[str, TargetFile] = {f"{base}.log": Gone() for base in bases}
        target |= {f"{base}.log": RenamedFrom(f"{base}.log.cleaned", 2) for base in into}
        with cProfile.Profile() as profile:
            plan = plan_of(root, target)
        assert len({operation.rewrite for operation in plan.operations}) == len(into)
        calls.append(sum(each.callcount for each in profile.getstats()))

    assert calls[1] < 2.5 * calls[0]


def test_the_clean_shutdown_marker_is_written_last_if_partitions_change(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234"})
    (tmp_path / names.CLEAN_SHUTDOWN_MARKER).write_bytes(b"marker")
    root = {
        names.CLEAN_SHUTDOWN_MARKER: NewBytes(b"marker"),
        names.RECOVERY_POINT_CHECKPOINT: NewBytes(b"0\n0\n"),
    }
    assert told(plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(2)}, root)) == [
        f"truncate {ZERO}.log to 2 bytes",
        "create recovery-point-offset-checkpoint: 4 bytes",
        "replace .kafka_cleanshutdown: 6 bytes",
    ]
    assert told(plan_of(tmp_path, {}, root)) == ["create recovery-point-offset-checkpoint: 4 bytes"]


def test_a_plan_reports_losses_and_the_space_that_it_needs(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"x" * 9000, f"{FIVE}.log": b"y" * 500, "old": b"z"})
    plan = plan_of(
        tmp_path,
        {f"{ZERO}.log": KeptUpTo(8000), f"{FIVE}.log": Gone(), "old": NewBytes(b"a" * 70)},
    )
    assert plan.lost_bytes == 1000 + 500 + 1
    assert plan.needed_bytes == 1000 + 70


def test_zeroes_after_an_index_are_not_a_loss(tmp_path: Path) -> None:
    partition = write_files(tmp_path, {f"{ZERO}.index": b"12345678"})
    os.truncate(partition / f"{ZERO}.index", 10 << 20)
    assert plan_of(tmp_path, {f"{ZERO}.index": KeptUpTo(8)}).lost_bytes <= 4096


def test_rows_have_the_same_fields_for_every_operation(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234"})
    assert list(plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(2)}).rows()) == [
        {
            "action": "cut",
            "directory": str(tmp_path / "orders-0"),
            "file": f"{ZERO}.log",
            "source": None,
            "size_bytes": 2,
            "lost_bytes": 2,
            "rewrite": None,
        }
    ]


@pytest.mark.parametrize(
    "target", [KeptUpTo(5), CopiedFrom("a", 0, 5), RenamedFrom("b", 1), Kept()]
)
def test_a_source_that_has_become_shorter_or_is_missing_is_refused(
    tmp_path: Path, target: KeptUpTo | CopiedFrom | RenamedFrom | Kept
) -> None:
    write_files(tmp_path, {"a": b"1234"})
    name = "c" if isinstance(target, Kept) else "a"
    with pytest.raises(KdumpError, match="run the command again"):
        plan_of(tmp_path, {name: target})


def test_a_partition_must_be_in_its_log_directory(tmp_path: Path) -> None:
    target = TargetDirectory(tmp_path, (TargetPartition(tmp_path.parent / "a-0", {}),), {})
    with pytest.raises(ValueError, match="is not a partition"):
        make_plan(target)


@pytest.mark.parametrize("target", ["nowhere", "a"])
def test_a_symbolic_link_to_nothing_is_not_replaced(target: str, tmp_path: Path) -> None:
    (write_files(tmp_path, {}) / "a").symlink_to(target)
    with pytest.raises(KdumpError, match="symbolic link to nothing"):
        make_plan(target_of(tmp_path, {"a": NewBytes(b"")}))


@pytest.mark.parametrize("target", [Gone(), NewBytes(b"{}")])
def test_a_directory_in_the_place_of_the_clean_shutdown_marker_is_refused(
    target: TargetFile, tmp_path: Path
) -> None:
    """A broker that finds it starts as after a clean shutdown."""
    (tmp_path / names.CLEAN_SHUTDOWN_MARKER).mkdir()
    with pytest.raises(KdumpError, match="remove it first"):
        make_plan(TargetDirectory(tmp_path, (), {names.CLEAN_SHUTDOWN_MARKER: target}))
