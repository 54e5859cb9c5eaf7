from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.producer_snapshot import ENTRY_BYTES, HEADER_BYTES, ProducerEntry

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ENTRIES = st.builds(ProducerEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64)

ENTRY = ProducerEntry(
    producer_id=7,
    epoch=1,
    last_sequence=9,
    last_offset=40,
    offset_delta=4,
    timestamp=1_000,
    coordinator_epoch=0,
    current_txn_first_offset=-1,
)


def message_of(data: bytes) -> str:
    with pytest.raises(FormatError) as refused:
        producer_snapshot.read(data)
    return refused.value.what


def test_a_snapshot_is_10_bytes_and_46_for_each_producer() -> None:
    assert (HEADER_BYTES, ENTRY_BYTES) == (10, 46)
    assert len(producer_snapshot.encode([ENTRY, ENTRY])) == 102


@given(st.lists(ENTRIES, max_size=5))
def test_what_is_encoded_is_read_back(entries: list[ProducerEntry]) -> None:
    snapshot = producer_snapshot.read(producer_snapshot.encode(entries))
    assert snapshot.entries == tuple(entries)
    assert (snapshot.version, snapshot.trailing_bytes) == (1, 0)


def test_every_snapshot_of_a_broker_is_encoded_to_the_same_bytes(fixtures: Path) -> None:
    paths = sorted(fixtures.glob("out/**/*.snapshot"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        assert producer_snapshot.encode(producer_snapshot.read(data).entries) == data


@given(st.binary(max_size=120))
def test_any_bytes_are_a_snapshot_or_a_format_error(data: bytes) -> None:
    try:
        snapshot = producer_snapshot.decode(data)
    except FormatError:
        return
    assert HEADER_BYTES + len(snapshot.entries) * ENTRY_BYTES + snapshot.trailing_bytes == len(data)


def test_a_changed_byte_breaks_the_checksum_with_kafkas_message() -> None:
    data = bytearray(producer_snapshot.encode([ENTRY]))
    stored = int.from_bytes(data[2:6])
    data[20] ^= 1
    computed = producer_snapshot.compute_crc(data)
    assert message_of(bytes(data)) == (
        "Snapshot is corrupt (CRC is no longer valid). "
        f"Stored crc: {stored}. Computed crc: {computed}"
    )


def test_a_wrong_checksum_leaves_the_entries_readable() -> None:
    data = bytearray(producer_snapshot.encode([ENTRY]))
    data[2] ^= 1
    snapshot = producer_snapshot.decode(data)
    assert snapshot.entries == (ENTRY,)
    assert producer_snapshot.crc_problem(data, snapshot) is not None


def test_the_checksum_covers_bytes_after_the_entries() -> None:
    assert "CRC is no longer valid" in message_of(producer_snapshot.encode([ENTRY]) + b"\0")


@pytest.mark.parametrize("size", [0, 1, 2, 5, 9, 55])
def test_a_snapshot_that_ends_early_is_refused_as_java_names_it(size: int) -> None:
    data = producer_snapshot.encode([ENTRY])[:size]
    assert message_of(data) == "Snapshot failed schema validation: null"


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_refused(version: int) -> None:
    data = struct.pack(">h", version) + producer_snapshot.encode([])[2:]
    assert message_of(data) == (
        f"Snapshot failed schema validation: Snapshot contained an unknown file version {version}"
    )


def test_a_negative_count_is_refused() -> None:
    data = producer_snapshot.encode([])[:6] + struct.pack(">i", -1)
    assert message_of(data) == (
        "Snapshot failed schema validation: "
        "non-nullable field producerEntries was serialized as null"
    )


def test_a_count_beyond_the_bytes_is_refused_before_memory_is_allocated() -> None:
    data = producer_snapshot.encode([])[:6] + struct.pack(">i", 2**31 - 1) + bytes(3)
    assert message_of(data) == (
        "Snapshot failed schema validation: Tried to allocate a collection of size 2147483647, "
        "but there are only 3 bytes remaining."
    )


@pytest.mark.parametrize(
    ("last_sequence", "offset_delta", "first_sequence"),
    [(9, 4, 5), (4, 4, 0), (1, 4, 2**31 - 3), (-1, 0, 2**31 - 1), (0, -1, 1)],
)
def test_sequences_wrap_below_zero(
    last_sequence: int, offset_delta: int, first_sequence: int
) -> None:
    entry = ProducerEntry(7, 0, last_sequence, 40, offset_delta, 0, 0, -1)
    assert entry.first_sequence == first_sequence
