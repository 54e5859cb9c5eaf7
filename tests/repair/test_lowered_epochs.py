"""Leader epochs are lowered in a stream of batches, however the stream is cut into pieces."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.message_sets import message
from kdump.formats.checkpoints import EpochEntry
from kdump.repair.transplant.lowered_epochs import lowered, lowered_entries
from kdump.scan.batches import read_windows
from kdump.target.virtual_directory import BytesSource

epochs = st.integers(-1, 2**31 - 1)


@given(st.lists(epochs, max_size=6), st.lists(st.integers(0, 900), max_size=8), epochs)
def test_only_epochs_change_and_none_is_above_the_limit(
    of_batches: list[int], cuts: list[int], limit: int
) -> None:
    log = b"".join(
        batch([record(at, value=bytes(at * 7))], partition_leader_epoch=epoch)
        for at, epoch in enumerate(of_batches)
    )
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    pieces = [log[begin:end] for begin, end in itertools.pairwise(edges)]
    expected = b"".join(
        batch([record(at, value=bytes(at * 7))], partition_leader_epoch=min(epoch, limit))
        for at, epoch in enumerate(of_batches)
    )
    found = b"".join(lowered(pieces, limit))
    assert found == expected
    for window in read_windows(BytesSource(found)):
        assert window.batches.is_valid.all()


def test_messages_of_old_formats_stay_as_they_are() -> None:
    log = message(0, magic=1) + message(1, magic=0)
    mixed = log + batch([record(2)], partition_leader_epoch=9)
    for size in (1, 7, 1000):
        pieces = [mixed[at : at + size] for at in range(0, len(mixed), size)]
        assert b"".join(lowered(pieces, 3)) == log + batch([record(2)], partition_leader_epoch=3)


@given(st.sets(st.integers(0, 20), max_size=6), st.integers(0, 20))
def test_the_checkpoint_has_the_epoch_of_each_lowered_batch(before: set[int], limit: int) -> None:
    entries = [EpochEntry(epoch, 10 * at) for at, epoch in enumerate(sorted(before))]
    found = lowered_entries(entries, limit)
    assert list(found) == sorted(found)
    for entry in entries:
        at_offset = [each for each in found if each.start_offset <= entry.start_offset]
        assert at_offset[-1].epoch == min(entry.epoch, limit)
    assert lowered_entries(entries, None) == tuple(entries)
