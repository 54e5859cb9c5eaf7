"""A log without named records is the log before, minus those records, batch by batch."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import zlib
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.batches import batch, record
from builders.erasures import PARTITION, Read, erased, is_named, random_erasure, records_of
from builders.message_sets import message, wrapper
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.record_batch import RecordHeader
from kdump.payloads.named_fields import NamedField
from kdump.repair.erase.erased_log import LogToErase, MatchedAmount
from kdump.repair.erase.mask import Mask
from kdump.repair.erase.named_records import NamedRecords
from kdump.scan.batches import Window, read_windows
from kdump.storage.local_disk import local
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import BytesSource

PRODUCED = record_batch.TRANSACTIONAL_FLAG | record_batch.LOG_APPEND_TIME_FLAG


def batches_of(log: bytes) -> list[tuple[record_batch.BatchHeader, bytes]]:
    found = []
    for window in read_windows(BytesSource(log)):
        assert isinstance(window, Window)
        for row in range(window.batches.count):
            assert window.batches.is_valid[row]
            found.append((window.batches.header(row), bytes(window.batch_bytes(row))))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, NamedRecords]:
    rng = random.Random(draw(st.integers(0, 10_000)))
    return random_erasure(rng)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("erase") / f"{0:020d}.log"


@given(case=cases())
def test_exactly_the_named_records_are_gone(path: Path, case: tuple[bytes, NamedRecords]) -> None:
    log, named = case

    after = erased(path, log, named)

    expected = [each for each in records_of(log) if not is_named(named, each)]
    assert list(records_of(after)) == expected


def masked(each: Read) -> Read:
    """Mask a record, by the simplest reading of the manual."""
    offset, timestamp, key, value, headers, is_control = each
    assert isinstance(headers, tuple)
    assert key is not None
    return (
        offset,
        timestamp,
        hashlib.sha256(key).hexdigest().encode(),
        None if value is None else b"*" * len(value),
        tuple(
            RecordHeader(header.key, None if header.value is None else b"*" * len(header.value))
            for header in headers
        ),
        is_control,
    )


@given(case=cases())
def test_exactly_the_named_records_are_masked(path: Path, case: tuple[bytes, NamedRecords]) -> None:
    log, named = case
    by_key = NamedRecords(named.keys)

    after = erased(path, log, by_key, Mask())

    expected = [masked(each) if is_named(by_key, each) else each for each in records_of(log)]
    found = list(records_of(after))
    assert found == expected
    assert not any(is_named(by_key, each) for each in found)
    assert erased(path, after, by_key, Mask()) == after


@given(case=cases())
def test_masked_batches_keep_what_their_headers_say(
    path: Path, case: tuple[bytes, NamedRecords]
) -> None:
    log, named = case
    by_key = NamedRecords(named.keys)

    before, after = batches_of(log), batches_of(erased(path, log, by_key, Mask()))

    assert len(after) == len(before)
    for (old, old_data), (new, new_data) in zip(before, after, strict=True):
        if not any(is_named(by_key, each) for each in records_of(old_data)):
            assert new_data == old_data
        elif old.magic == 2:
            assert replace(new, length=0, crc=0, base_timestamp=0, max_timestamp=0) == replace(
                old, length=0, crc=0, base_timestamp=0, max_timestamp=0
            )


@given(case=cases())
def test_batches_stay_and_those_without_a_named_record_byte_for_byte(
    path: Path, case: tuple[bytes, NamedRecords]
) -> None:
    log, named = case

    before, after = batches_of(log), batches_of(erased(path, log, named))

    assert len(after) == len(before)
    for (old, old_data), (new, new_data) in zip(before, after, strict=True):
        records = list(records_of(old_data))
        if not any(is_named(named, each) for each in records):
            assert new_data == old_data
            continue
        last = new.base_offset + new.last_offset_delta
        if old.magic < 2:
            assert (new.base_offset, last) == (records[0][0], records[-1][0])
            continue
        assert (new.base_offset, last) == (old.base_offset, old.base_offset + old.last_offset_delta)
        for name in ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
            assert getattr(new, name) == getattr(old, name)
        assert new.attributes & PRODUCED == old.attributes & PRODUCED
        if new.records_count:
            mask = record_batch.CODEC_MASK
            assert new.attributes & mask == old.attributes & mask


@given(case=cases())
def test_the_amounts_are_those_of_the_log(path: Path, case: tuple[bytes, NamedRecords]) -> None:
    log, named = case
    path.write_bytes(log)

    amount = LogToErase(local(path), named.matcher(PARTITION)).amount()

    records = list(records_of(log))
    changed = [[is_named(named, each) for each in records_of(data)] for _, data in batches_of(log)]
    assert amount == MatchedAmount(
        len(records),
        sum(is_named(named, each) for each in records),
        sum(any(own) for own in changed),
        sum(bool(own) and all(own) for own in changed),
    )


@pytest.mark.parametrize(
    ("named", "left"),
    [
        (NamedRecords(frozenset({b"alice"})), [b"", None, b"alice2", b"bob"]),
        (NamedRecords(frozenset({b""})), [b"alice", None, b"alice2", b"bob"]),
        (NamedRecords(prefixes=(b"alice",)), [b"", None, b"bob"]),
        (NamedRecords(offsets={PARTITION: (2,)}), [b"alice", b"", b"alice2", b"bob"]),
        (NamedRecords(offsets={"orders-1": (2,)}), [b"alice", b"", None, b"alice2", b"bob"]),
    ],
    ids=["whole key", "empty key", "prefix", "offset of no key", "other partition"],
)
@pytest.mark.parametrize("codec", Codec)
def test_a_key_is_matched_whole_and_null_is_no_key(
    path: Path, named: NamedRecords, left: list[bytes | None], codec: Codec
) -> None:
    keys = [b"alice", b"", None, b"alice2", b"bob"]
    log = batch(
        [
            record(offset, key, b"alice", headers=[(b"alice", b"alice")])
            for offset, key in enumerate(keys)
        ],
        codec=codec,
    )

    assert [each[2] for each in records_of(erased(path, log, named))] == left


LONG: Final = b"alice" * 1000
"""So long a key changes how the keys beside it are compared."""


@pytest.mark.parametrize(
    ("named", "left"),
    [
        ({b"alice"}, [LONG, b"bob", None]),
        ({LONG}, [b"alice", b"bob", None]),
        ({b"alice", LONG}, [b"bob", None]),
        ({b"alice", LONG[:-1] + b"x"}, [LONG, b"bob", None]),
    ],
    ids=["beside a long key", "long key", "both", "another long key"],
)
@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "batches"])
def test_a_key_is_found_however_long_others_are(
    path: Path, named: set[bytes], left: list[bytes | None], apart: bool
) -> None:
    records = [record(at, key) for at, key in enumerate([b"alice", LONG, b"bob", None])]
    log = b"".join(batch([each]) for each in records) if apart else batch(records)

    after = erased(path, log, NamedRecords(frozenset(named)))

    assert [each[2] for each in records_of(after)] == left


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("secret", [b"", b"s" * 16], ids=["plain", "secret"])
def test_a_masked_record_says_nothing_but_the_hash_of_its_key(
    path: Path, codec: Codec, secret: bytes
) -> None:
    headers = [(b"by", b"alice"), (b"at", None)]
    rows = [
        record(0, b"alice", b"of alice", headers),
        record(1, b"", b""),
        record(2, b"alice", None),
        record(3, None, b"alice"),
    ]

    after = erased(
        path, batch(rows, codec=codec), NamedRecords(frozenset({b"alice", b""})), Mask(secret)
    )

    alice, nobody = (
        (hmac.new(secret, key, "sha256") if secret else hashlib.sha256(key)).hexdigest().encode()
        for key in (b"alice", b"")
    )
    by, at = RecordHeader(b"by", b"*" * 5), RecordHeader(b"at", None)
    assert [(key, value, own) for _, _, key, value, own, _ in records_of(after)] == [
        (alice, b"*" * 8, (by, at)),
        (nobody, b"", ()),
        (alice, None, ()),
        (None, b"alice", ()),
    ]


def test_the_amounts_of_masked_records_have_no_emptied_batches(path: Path) -> None:
    path.write_bytes(batch([record(0, b"alice"), record(1, b"alice")]) + batch([record(2)]))
    matcher = NamedRecords(frozenset({b"alice"})).matcher(PARTITION)

    assert LogToErase(local(path), matcher, mask=Mask()).amount() == MatchedAmount(3, 2, 1, 0)


@given(
    named=st.sets(st.binary(max_size=20), max_size=40),
    others=st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=40),
)
def test_exactly_the_keys_of_a_list_are_found(
    path: Path, named: set[bytes], others: list[bytes | None]
) -> None:
    keys = [*others, *named]
    log = batch([record(at, key) for at, key in enumerate(keys)])

    after = erased(path, log, NamedRecords(frozenset(named)))

    assert [each[2] for each in records_of(after)] == [key for key in keys if key not in named]


FIELD: Final = NamedField(False, ("who", "id"), "alice")


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"


DOCUMENTS: Final = st.recursive(
    st.sampled_from(["null", "true", "7", "-0", '"bob"', '"\\u00e9"', '"alice"', '"\\u0061lice"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        # A name may stand twice, and may be written otherwise than it reads.
        | st.lists(st.tuples(st.sampled_from(["who", "id", "\\u0069d"]), inner), max_size=3).map(
            _object
        )
    ),
    max_leaves=8,
)


class _Pairs(list[tuple[str, object]]):
    """A JSON object as it is written."""


def has_alice(value: object, path: tuple[str, ...] = ("who", "id")) -> bool:
    """Whether JSON has the field, by the simplest reading of the manual."""
    if isinstance(value, _Pairs):
        return bool(path) and any(
            has_alice(each, path[1:]) for name, each in value if name == path[0]
        )
    if isinstance(value, list):
        return any(has_alice(each, path) for each in value)
    return not path and value == "alice"


def _batch_of(form: str, first: int, values: list[bytes | None]) -> bytes:
    """Batches with these values at the offsets from ``first``."""
    if form == "old":
        return b"".join(message(first + at, b"k", value) for at, value in enumerate(values))
    if form == "old, compressed":
        inner = (message(at, b"k", value) for at, value in enumerate(values))
        return wrapper(inner, offset=first + len(values) - 1)
    codec = Codec.GZIP if form == "compressed" else Codec.NONE
    return batch([record(first + at, b"k", value) for at, value in enumerate(values)], codec=codec)


@pytest.mark.parametrize("form", ["plain", "compressed", "old", "old, compressed"])
@given(
    values=st.lists(
        st.none() | DOCUMENTS.map(str.encode) | st.just(b"\xff{"), min_size=1, max_size=12
    ),
    size=st.integers(1, 4),
)
def test_exactly_the_records_with_a_field_are_gone(
    path: Path, form: str, values: list[bytes | None], size: int
) -> None:
    log = b"".join(
        _batch_of(form, first, values[first : first + size])
        for first in range(0, len(values), size)
    )
    named = NamedRecords(fields=(FIELD,))

    after = erased(path, log, named)

    gone = {
        at
        for at, value in enumerate(values)
        if value not in (None, b"\xff{")
        and has_alice(json.loads(value or b"", object_pairs_hook=_Pairs))
    }
    assert [each[0] for each in records_of(after)] == [
        at for at in range(len(values)) if at not in gone
    ]
    for (_, old), (_, new) in zip(batches_of(log), batches_of(after), strict=True):
        assert (old == new) is not any(each[0] in gone for each in records_of(old))
    path.write_bytes(log)
    found = LogToErase(local(path), named.matcher(PARTITION))
    amount = found.amount()
    assert amount.erased_records == len(gone)
    assert amount.undecoded_records == values.count(b"\xff{")
    assert found.erased().keys == set()


def test_the_key_of_a_record_is_searched_for_if_it_is_named_too(path: Path) -> None:
    path.write_bytes(
        batch([record(at, key, b'{"who": {"id": "alice"}}') for at, key in enumerate((b"a", b"b"))])
    )
    named = NamedRecords(frozenset({b"a"}), fields=(FIELD,))
    found = LogToErase(local(path), named.matcher(PARTITION)).erased()
    assert (found.keys, found.offsets, found.records_without_key) == ({b"a"}, [0, 1], 1)


def test_control_records_are_never_erased(path: Path) -> None:
    flags = record_batch.CONTROL_FLAG | record_batch.TRANSACTIONAL_FLAG
    log = batch(
        [record(5, b"\0\0\0\1", bytes(6))], attributes=flags, producer_id=4, producer_epoch=0
    )
    named = NamedRecords(frozenset({b"\0\0\0\1"}), (b"\0",), {PARTITION: (5,)})

    assert erased(path, log, named) == log


def test_a_batch_that_loses_all_records_keeps_what_its_producer_needs(path: Path) -> None:
    flags = record_batch.TRANSACTIONAL_FLAG
    log = batch(
        [record(5, b"alice"), record(9, b"alice")],
        codec=Codec.ZSTD,
        attributes=flags,
        producer_id=4,
        producer_epoch=1,
        base_sequence=70,
        partition_leader_epoch=3,
    )

    ((old, _),) = batches_of(log)
    ((new, data),) = batches_of(erased(path, log, NamedRecords(frozenset({b"alice"}))))

    assert len(data) == record_batch.HEADER_BYTES
    assert (new.records_count, new.attributes) == (0, flags)
    for name in (
        "base_offset",
        "last_offset_delta",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ):
        assert getattr(new, name) == getattr(old, name), name


@pytest.mark.parametrize("named", [{b"key"}, {b"nobody"}], ids=["named", "unnamed"])
def test_a_damaged_batch_is_refused_because_records_may_hide_in_it(
    path: Path, named: set[bytes]
) -> None:
    log = bytearray(batch([record(0)]) + batch([record(1)]))
    log[-1] ^= 1

    with pytest.raises(Refused) as refused:
        erased(path, bytes(log), NamedRecords(frozenset(named)))

    assert refused.value.refusal.position == len(log) // 2


def test_a_message_whose_value_reaches_past_it_is_refused(path: Path) -> None:
    """A right checksum does not make it decodable."""
    second = bytearray(message(1, b"k", b"v"))
    second[-2] = 99  # the size of the value
    second[12:16] = zlib.crc32(second[16:]).to_bytes(4, "big")

    with pytest.raises(Refused) as refused:
        erased(path, message(0) + bytes(second), NamedRecords(frozenset({b"nobody"})))

    assert refused.value.refusal.position == len(message(0))


@pytest.mark.parametrize("tail", [bytes(100), b"key" * 40], ids=["zeroes", "anything"])
def test_bytes_after_the_last_batch_are_refused(path: Path, tail: bytes) -> None:
    with pytest.raises(Refused):
        erased(path, batch([record(0)]) + tail, NamedRecords(frozenset({b"nobody"})))
