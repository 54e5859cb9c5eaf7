"""The listing of producer snapshots that a directory updates as files are added and removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.storage.local_disk import local
from kdump.target.refusal import Refused
from kdump.target.snapshot_listing import SnapshotListing
from kdump.target.virtual_directory import VirtualDirectory, Written

NAMES = st.sampled_from(
    ["00000000000000000005.snapshot", "5.snapshot", "7.snapshot", "007.snapshot", "9.snapshot"]
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "list"]), NAMES), max_size=20))
def test_the_listing_follows_every_change_of_the_directory(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]]
) -> None:
    directory = VirtualDirectory(local(tmp_path_factory.getbasetemp())).only(())
    for change, name in changes:
        if change == "put":
            directory.put(name, Written(b""))
        elif change == "remove":
            directory.remove(name)
        listing = directory.list_snapshots()

        expected = SnapshotListing(directory.snapshot_names())
        assert listing.offsets == expected.offsets
        assert [listing.name_at(offset) for offset in listing.offsets] == [
            expected.name_at(offset) for offset in expected.offsets
        ]


def test_a_snapshot_name_without_an_offset_is_refused_on_listing(tmp_path: Path) -> None:
    directory = VirtualDirectory(local(tmp_path))
    directory.list_snapshots()

    directory.put("any.snapshot", Written(b""))

    with pytest.raises(Refused, match="without an offset"):
        directory.list_snapshots()


@given(st.sets(st.integers(0, 9)), st.integers(0, 9), st.integers(0, 9))
def test_snapshots_outside_a_range_are_found(offsets: set[int], above: int, to: int) -> None:
    listing = SnapshotListing(f"{offset}.snapshot" for offset in offsets)

    expected = [offset for offset in sorted(offsets) if offset <= above or offset > to]
    assert listing.outside(above, to) == expected


def test_snapshots_at_or_below_an_offset_are_listed_newest_first() -> None:
    listing = SnapshotListing(["3.snapshot", "1.snapshot", "5.snapshot"])

    assert list(listing.at_or_below(4)) == ["3.snapshot", "1.snapshot"]
