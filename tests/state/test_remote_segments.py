"""Which remote segments a broker reads, by the events of remote log metadata."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.checkpoints import EpochEntry
from kdump.state.remote_segments import RemoteSegment, RemoteSegments, SegmentState

STARTED, FINISHED, DELETING, DELETED = SegmentState


def segment(name: str, start: int, end: int, **epochs: int) -> RemoteSegment:
    entries = tuple(EpochEntry(int(epoch[1:]), offset) for epoch, offset in epochs.items())
    return RemoteSegment(name, start, end, entries or (EpochEntry(0, start),), None, STARTED)


def copied(*segments: RemoteSegment) -> RemoteSegments:
    found = RemoteSegments()
    for each in segments:
        found.add_finished(each)
    return found


def read(segments: RemoteSegments, end: int = 10**6, **lineage: int) -> list[tuple[str, int, int]]:
    entries = [EpochEntry(int(epoch[1:]), offset) for epoch, offset in lineage.items()]
    return [
        ("-" if each.segment is None else each.segment.segment_id, *each[1:])
        for each in segments.read_ranges(entries or [EpochEntry(0, 0)], end)
    ]


def test_adjacent_segments_are_read_one_after_the_other() -> None:
    found = copied(segment("a", 0, 9), segment("b", 10, 19))
    assert read(found) == [("a", 0, 10), ("b", 10, 20)]


def test_reading_ends_where_the_local_log_begins() -> None:
    found = copied(segment("a", 0, 9), segment("b", 10, 19))
    assert read(found, 15) == [("a", 0, 10), ("b", 10, 15)]
    assert read(found, 10) == [("a", 0, 10)]
    assert read(found, 0) == []


def test_a_longer_copy_from_the_same_offset_replaces_a_shorter_one() -> None:
    assert read(copied(segment("a", 0, 100), segment("b", 0, 200))) == [("b", 0, 201)]


def test_a_later_copy_that_begins_before_replaces_the_first() -> None:
    found = copied(segment("a", 10, 90), segment("b", 5, 100), segment("c", 101, 200))
    assert read(found, e0=5) == [("b", 5, 101), ("c", 101, 201)]


def test_segments_that_are_not_finished_are_not_read() -> None:
    found = copied(segment("a", 0, 9), segment("c", 20, 29))
    found.add(segment("b", 10, 19))
    assert read(found) == [("a", 0, 10), ("-", 10, 20), ("c", 20, 30)]
    found.update("b", FINISHED)
    assert read(found) == [("a", 0, 10), ("b", 10, 20), ("c", 20, 30)]
    found.update("c", DELETING)
    assert read(found) == [("a", 0, 10), ("b", 10, 20)]


def test_a_deleted_segment_is_forgotten() -> None:
    found = copied(segment("a", 0, 9))
    found.update("a", DELETING)
    found.update("a", DELETED)
    assert found.segments == {}


def test_impossible_changes_of_state_are_dropped() -> None:
    found = copied(segment("a", 0, 9))
    found.update("a", DELETED)
    found.update("unknown", FINISHED)
    found.add(segment("a", 5, 6))
    assert read(found) == [("a", 0, 10)]


def test_offsets_of_another_lineage_are_not_read() -> None:
    old = segment("old", 0, 99, e0=0, e1=60)
    new = segment("new", 60, 119, e2=60)
    lineage = {"e0": 0, "e2": 60}
    assert read(copied(old, new), **lineage) == [("old", 0, 60), ("new", 60, 120)]
    assert read(copied(old), **lineage) == [("old", 0, 60)]


def test_a_segment_with_several_epochs_is_one_range() -> None:
    found = copied(segment("a", 0, 99, e0=0, e3=40))
    assert read(found, e0=0, e3=40) == [("a", 0, 100)]


def test_the_highest_offset_is_that_of_the_latest_epoch_with_segments() -> None:
    found = copied(segment("a", 0, 99, e0=0), segment("b", 100, 149, e1=100))
    epochs = [EpochEntry(0, 0), EpochEntry(1, 100), EpochEntry(2, 150)]
    assert found.highest_offset(epochs) == 149
    assert found.highest_offset([EpochEntry(0, 0), EpochEntry(4, 50)]) == 49
    assert RemoteSegments().highest_offset(epochs) is None


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=8),
    st.integers(0, 70),
)
def test_each_offset_is_read_once_from_a_segment_that_has_it(
    pairs: list[tuple[int, int]], end: int
) -> None:
    segments = [segment(str(at), start, start + size) for at, (start, size) in enumerate(pairs)]
    ranges = copied(*segments).read_ranges([EpochEntry(0, 0)], end)
    assert [each.from_offset for each in ranges[1:]] == [each.to_offset for each in ranges[:-1]]
    for each in ranges:
        assert each.from_offset < each.to_offset <= end
        if each.segment is not None:
            assert each.segment.start_offset <= each.from_offset
            assert each.to_offset <= each.segment.end_offset + 1


def lineage(**epochs: int) -> list[EpochEntry]:
    return [EpochEntry(int(epoch[1:]), offset) for epoch, offset in epochs.items()]


def test_only_what_was_copied_to_the_end_counts_as_deleted() -> None:
    found = copied(segment("a", 0, 9))
    found.add(segment("failed", 10, 99))
    for state in (DELETING, DELETED):
        found.update("failed", state)
        assert found.deleted_to(lineage(e0=0)) == 0
    found.update("a", DELETING)
    assert found.deleted_to(lineage(e0=0)) == 10
    found.update("a", DELETED)
    assert found.deleted_to(lineage(e0=0)) == 10


def test_what_an_abandoned_leader_had_copied_does_not_count_as_deleted() -> None:
    found = copied(
        segment("a", 0, 9, e1=0), segment("other", 10, 99, e2=10), segment("long", 10, 59, e1=10)
    )
    for name in ("a", "other", "long"):
        found.update(name, DELETING)
    # Epoch 2 is not in the log, and epoch 1 ends in it at offset 30.
    assert found.deleted_to(lineage(e1=0, e3=30)) == 30
    # The log begins after what was deleted, and knows its epochs no more.
    assert found.deleted_to(lineage(e3=60)) == 60
    assert found.deleted_to(lineage(e3=200)) == 100
    assert found.deleted_to([]) == 100
