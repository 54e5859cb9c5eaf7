"""What a plan for a usual deletion comes to is what the plan says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.apply.operations import OperationKind
from kdump.apply.plan import InPlace, TargetPartition, plan_partition, space_bytes
from kdump.apply.usual_deletion import UsualDeletion, usual_deletion
from kdump.errors import KdumpError
from kdump.storage.local_disk import LOCAL_DISK
from kdump.target.target_file import Gone, Kept, KeptUpTo, NewBytes, RenamedFrom, TargetFile

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FILES = [f"{offset:020d}{suffix}" for offset in (0, 5, 9) for suffix in SUFFIXES]
SMALL = ["leader-epoch-checkpoint", "partition.metadata"]
ODD = ["7.log", "note", f"{5:020d}.log.deleted", f"{5:020d}.log.swap", f"{5:020d}.index.cleaned"]

contents = st.sampled_from([b"", b"one", b"two", b"longer"])
targets = st.one_of(
    st.just(Gone()),
    st.builds(NewBytes, contents),
    st.sampled_from([Kept(), KeptUpTo(1), RenamedFrom(FILES[0], 0)]),
)


def both(
    partition: Path, target: dict[str, TargetFile], *, keep_undo: bool = True
) -> tuple[UsualDeletion | None, UsualDeletion]:
    """What is found without a plan, and what the plan says."""
    entries = LOCAL_DISK.entries(str(partition))
    plan = plan_partition(
        partition.parent, TargetPartition(partition, target), InPlace.below(partition.parent)
    )
    return usual_deletion(partition, target, entries), UsualDeletion(
        tuple((each.kind, each.name) for each in plan.operations),
        space_bytes(plan.operations, keep_undo=keep_undo),
    )


def written(folder: Path, files: dict[str, bytes]) -> Path:
    partition = folder / "topic-0"
    partition.mkdir()
    for name, content in files.items():
        (partition / name).write_bytes(content)
    return partition


@given(
    files=st.dictionaries(st.sampled_from(FILES + SMALL), contents),
    odd=st.dictionaries(st.sampled_from(ODD), contents, max_size=1),
    target=st.dictionaries(st.sampled_from(FILES + SMALL), targets),
    keep_undo=st.booleans(),
)
def test_any_target_that_is_not_left_to_the_plan_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, bytes],
    odd: dict[str, bytes],
    target: dict[str, TargetFile],
    keep_undo: bool,
) -> None:
    partition = written(tmp_path_factory.mktemp("any"), files | odd)
    try:
        usual, planned = both(partition, target, keep_undo=keep_undo)
    except KdumpError:
        entries = LOCAL_DISK.entries(str(partition))
        assert usual_deletion(partition, target, entries) is None
    else:
        assert usual in (None, planned)


@given(
    count=st.integers(1, 3),
    kept=st.sets(st.sampled_from(FILES)),
    epochs=st.sampled_from([None, b"one", b"two", b"longer"]),
)
def test_deleting_the_first_segments_is_usual(
    tmp_path_factory: pytest.TempPathFactory, count: int, kept: set[str], epochs: bytes | None
) -> None:
    logs = {name for name in FILES if name.endswith(".log")}
    files = dict.fromkeys(logs | kept, b"data") | dict.fromkeys(SMALL, b"one")
    partition = written(tmp_path_factory.mktemp("usual"), files)
    going = [name for name in FILES[: 5 * count] if name in files]
    target: dict[str, TargetFile] = dict.fromkeys(going, Gone())
    if count == 3:
        target |= {f"{20:020d}{suffix}": NewBytes(b"") for suffix in SUFFIXES[:3]}
    if epochs is not None:
        target[SMALL[0]] = NewBytes(epochs)

    usual, planned = both(partition, target)

    assert usual == planned


def test_a_link_is_left_to_the_plan(tmp_path: Path) -> None:
    partition = written(tmp_path, {FILES[5]: b"data"})
    (tmp_path / "elsewhere").write_bytes(b"data")
    (partition / FILES[0]).symlink_to(tmp_path / "elsewhere")

    usual, planned = both(partition, {FILES[0]: Gone()})

    assert usual is None
    assert planned.changes == ((OperationKind.REMOVE, FILES[0]),)
