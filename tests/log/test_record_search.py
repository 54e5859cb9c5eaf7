"""Records are found by offset and by time, whatever is wrong with the indexes, with few reads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.index_files import Segment, offset_index_bytes, time_index_bytes
from builders.malformed_batches import rechecked, with_field, with_offsets
from builders.memory import in_memory
from builders.message_sets import message, wrapped_values
from kdump.formats.compression import Codec
from kdump.formats.record_batch import (
    CHECKED_START,
    CONTROL_FLAG,
    decode_header,
    encode_batch,
)
from kdump.log.directory import read_lone_partition
from kdump.log.partition import Partition
from kdump.log.record_search import LIMIT_BYTES, RecordInSegment, RecordSearch
from kdump.storage.local_disk import local

CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.ZSTD)


@dataclass(frozen=True, slots=True)
class Written:
    """A record as it was written, and where its batch begins."""

    offset: int
    timestamp_ms: int
    segment: int
    position: int
    batch_base_offset: int


def write_segment(path: Path, base: int, batches: Sequence[bytes], every: int = 1) -> None:
    """Write a segment with the indexes that a broker writes, an entry for some of the batches."""
    segment = Segment(path, base)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position, latest = 0, (-1, base)
    for number, each in enumerate(batches):
        header = decode_header(each)
        if header.max_timestamp > latest[0]:
            latest = header.max_timestamp, header.last_offset
        is_last = number == len(batches) - 1
        if number and number % every == 0:
            offsets.append((header.last_offset, position))
        if (number % every == 0 or is_last) and (not times or times[-1][0] < latest[0]):
            times.append(latest)
        position += len(each)
    segment.write(".log", b"".join(batches))
    segment.write(".index", offset_index_bytes(offsets, base))
    segment.write(".timeindex", time_index_bytes(times, base))


def write_log(rng: random.Random, path: Path) -> list[Written]:
    """Write a partition of up to four segments with holes, codecs and times in no order."""
    path.mkdir()
    written, offset = [], rng.choice([0, 1000])
    for _ in range(rng.randrange(1, 5)):
        base, position, batches = offset, 0, []
        for _ in range(rng.randrange(1, 25)):
            first = offset
            records = []
            for _ in range(rng.randrange(1, 5)):
                time = BASE_TIMESTAMP_MS + rng.randrange(1_000_000)
                records.append(record(offset, timestamp=time, value=rng.randbytes(30)))
                written.append(Written(offset, time, base, position, first))
                offset += rng.choice([1, 1, 1, 3])
            batches.append(batch(records, codec=rng.choice(CODECS)))
            position += len(batches[-1])
            offset += rng.choice([0, 0, 5])
        write_segment(path, base, batches, every=rng.randrange(1, 5))
    return written


def partition_at(path: Path) -> Partition:
    return read_lone_partition(local(path), "orders-0")


def place(found: RecordInSegment | None) -> Written | None:
    if found is None:
        return None
    each = found.record
    assert each.timestamp_ms is not None
    base = int(found.log.name.removesuffix(".log"))
    return Written(each.offset, each.timestamp_ms, base, each.position, each.batch_base_offset)


def expected_of_time(written: Sequence[Written], time: int, start: int) -> Written | None:
    """Only the first segment that has such a time counts, as in a broker."""
    segment = next((each.segment for each in written if each.timestamp_ms >= time), None)
    fitting = (
        each
        for each in written
        if each.segment == segment and each.offset >= start and each.timestamp_ms >= time
    )
    return next(fitting, None)


def damage_indexes(rng: random.Random, path: Path) -> None:
    """Remove, cut, overwrite or exchange some of the indexes."""
    indexes = sorted(path.glob("*index"))
    for index in indexes:
        content = bytearray(index.read_bytes())
        match rng.randrange(6):
            case 0:
                index.unlink()
            case 1:
                index.write_bytes(content[: rng.randrange(len(content) + 1)])
            case 2 if content:
                for _ in range(rng.randrange(1, 8)):
                    content[rng.randrange(len(content))] = rng.randrange(256)
                index.write_bytes(content)
            case 3:
                other = rng.choice(indexes)
                if other.exists() and other.suffix == index.suffix:
                    index.write_bytes(other.read_bytes())
            case 4:
                index.write_bytes(bytes(len(content)))


@pytest.mark.parametrize("seed", range(40))
def test_every_record_is_found_whatever_is_wrong_with_the_indexes(seed: int) -> None:
    rng = random.Random(seed)
    are_damaged = seed % 3 > 0
    with in_memory(Path("unused")) as folder:
        written = write_log(rng, folder / "orders-0")
        if are_damaged:
            damage_indexes(rng, folder / "orders-0")
        partition = partition_at(folder / "orders-0")
        first, end = written[0].offset, written[-1].offset + 1

        for wanted in rng.sample(written, min(5, len(written))):
            assert place(RecordSearch(partition).at_or_after(wanted.offset)) == wanted
        asked = rng.randrange(first, end)
        following = next(each for each in written if each.offset >= asked)
        assert place(RecordSearch(partition).at_or_after(asked)) == following
        assert RecordSearch(partition).at_or_after(end) is None
        for wanted in rng.sample(written, min(5, len(written))):
            time, start = wanted.timestamp_ms + rng.choice([-1, 0, 1]), rng.randrange(first, end)
            found = place(RecordSearch(partition).not_older(time, start))
            assert found == expected_of_time(written, time, start)
        latest = max(each.timestamp_ms for each in written)
        (newest, *_) = (each for each in written if each.timestamp_ms == latest)
        assert place(RecordSearch(partition).with_max_timestamp()) == newest
        assert RecordSearch(partition).log_end_offset() >= end


# ---- How much is read ----

BATCH_VALUES: Final = 16


def write_large(path: Path, value_bytes: int, segments: int, batches_each: int) -> int:
    """Write segments of batches whose times rise; gives the number of records."""
    path.mkdir()
    offset = 0
    for _ in range(segments):
        base, batches = offset, []
        for _ in range(batches_each):
            records = [
                record(offset + step, value=bytes(value_bytes)) for step in range(BATCH_VALUES)
            ]
            batches.append(batch(records))
            offset += BATCH_VALUES
        write_segment(path, base, batches)
    return offset


Search = Callable[[RecordSearch, int], RecordInSegment | None]
SEARCHES: Final[dict[str, Search]] = {
    "offset": lambda search, offset: search.at_or_after(offset),
    "time": lambda search, offset: search.not_older(BASE_TIMESTAMP_MS + offset, 0),
    "max": lambda search, offset: search.with_max_timestamp(),
}


@pytest.fixture(scope="module", params=[(40, 2, 8_000), (4_000, 8, 50), (50, 400, 4)], ids=str)
def large(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, int]]:
    """Give a partition: of many batches, of large batches, or of many segments."""
    with in_memory(tmp_path_factory.mktemp("large")) as folder:
        yield folder / "orders-0", write_large(folder / "orders-0", *request.param)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_reads_little_of_a_large_log(kind: str, large: tuple[Path, int]) -> None:
    path, count = large
    partition = partition_at(path)
    for wanted in (0, count // 3, count - 1):
        search = RecordSearch(partition)
        assert search.log_end_offset() == count
        found = SEARCHES[kind](search, wanted)
        assert found is not None
        assert found.record.offset == (count - 1 if kind == "max" else wanted)
        assert search.read_bytes < LIMIT_BYTES
        assert not search.unused_indexes


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP])
def test_only_the_beginning_of_a_very_large_batch_is_read(codec: Codec, tmp_path: Path) -> None:
    rng = random.Random(1)
    records = [record(offset, value=rng.randbytes(20_000)) for offset in range(200)]
    path = tmp_path / "orders-0"
    path.mkdir()
    write_segment(path, 0, [batch(records, codec=codec)])
    search = RecordSearch(partition_at(path))

    found = search.at_or_after(20)

    assert found is not None
    assert (found.record.offset, found.record.value_bytes) == (20, 20_000)
    assert not found.record.is_checked
    assert search.read_bytes <= LIMIT_BYTES
    last = search.at_or_after(199)
    assert last is not None
    assert last.record.is_checked


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_missing_index_is_named_and_changes_nothing(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    count = write_large(path, 10, 2, 50)
    (path / f"{0:020d}.{suffix}").unlink()
    search = RecordSearch(partition_at(path))

    found = search.not_older(BASE_TIMESTAMP_MS + 300, 5)

    assert found is not None
    assert found.record.offset == 300
    assert search.unused_indexes == {f"{0:020d}.{suffix}"}
    assert search.log_end_offset() == count


# ---- Damage ----


def small_log(path: Path, batches: Sequence[bytes]) -> Path:
    path.mkdir()
    write_segment(path, 0, batches)
    return path / f"{0:020d}.log"


def three_batches() -> list[bytes]:
    return [batch([record(10 * n + step) for step in range(10)]) for n in range(3)]


@pytest.mark.parametrize("are_indexed", [True, False])
def test_after_a_damaged_batch_the_next_record_is_found_and_the_damage_noted(
    are_indexed: bool, tmp_path: Path
) -> None:
    batches = three_batches()
    log = small_log(tmp_path / "orders-0", batches)
    content = bytearray(log.read_bytes())
    content[len(batches[0]) + 80] ^= 1
    log.write_bytes(content)
    if not are_indexed:
        for index in log.parent.glob("*index"):
            index.unlink()
    search = RecordSearch(partition_at(log.parent))

    found = search.at_or_after(12)

    assert found is not None
    assert found.record.offset == 20
    (damage,) = search.damages.values()
    assert (damage.start, damage.end) == (len(batches[0]), 2 * len(batches[0]))


@pytest.mark.parametrize("is_preallocated", [True, False])
def test_the_log_ends_with_the_last_valid_batch_wherever_it_is_cut(
    is_preallocated: bool, tmp_path: Path
) -> None:
    batches = three_batches()
    log = small_log(tmp_path / "orders-0", batches)
    whole = log.read_bytes()
    ends = [0, len(batches[0]), 2 * len(batches[0]), len(whole)]
    for size in range(0, len(whole) + 1, 7):
        content = whole[:size] + bytes(5_000 if is_preallocated else 0)
        log.write_bytes(content)
        # The last byte of a batch may be zero.
        valid = max(n for n, end in enumerate(ends) if content[:end] == whole[:end])
        assert RecordSearch(partition_at(log.parent)).log_end_offset() == 10 * valid


@pytest.mark.parametrize("base_offset", [0, 4, 15])
def test_a_last_batch_that_goes_back_is_not_the_end(base_offset: int, tmp_path: Path) -> None:
    """No checksum covers the base offset."""
    first, second, third = three_batches()
    log = small_log(tmp_path / "orders-0", [first, second, third])
    log.with_suffix(".index").unlink()  # Its last entry may lead to that batch alone.
    log.write_bytes(first + second + with_field(third, 0, base_offset, 8))
    assert RecordSearch(partition_at(log.parent)).log_end_offset() == 20


def test_data_that_claims_to_be_a_control_batch_is_not_the_end(tmp_path: Path) -> None:
    first, second, third = three_batches()
    log = small_log(tmp_path / "orders-0", [first, second, third])
    attributes = decode_header(third).attributes | CONTROL_FLAG
    log.write_bytes(first + second + rechecked(with_field(third, CHECKED_START, attributes, 2)))
    assert RecordSearch(partition_at(log.parent)).log_end_offset() == 20


def test_a_damaged_last_batch_is_not_part_of_the_log(tmp_path: Path) -> None:
    log = small_log(tmp_path / "orders-0", three_batches())
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    search = RecordSearch(partition_at(log.parent))
    assert search.log_end_offset() == 20
    assert len(search.damages) == 1


# ---- Older formats ----


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_in_a_compressed_set_are_found(magic: int, tmp_path: Path) -> None:
    wrapped = wrapped_values([b"a", b"b", b"c"], first_offset=7, magic=magic)
    log = small_log_of(tmp_path / "orders-0", [message(3, magic=magic), wrapped])
    found = RecordSearch(partition_at(log.parent)).at_or_after(8)
    assert found is not None
    assert (found.record.offset, found.record.batch_base_offset) == (8, 7)
    assert (found.record.batch_last_offset, found.record.leader_epoch) == (9, None)


def small_log_of(path: Path, entries: Sequence[bytes]) -> Path:
    path.mkdir()
    log = path / f"{0:020d}.log"
    log.write_bytes(b"".join(entries))
    return log


def test_messages_without_times_have_no_largest_time(tmp_path: Path) -> None:
    log = small_log_of(tmp_path / "orders-0", [message(n, magic=0) for n in range(3)])
    search = RecordSearch(partition_at(log.parent))
    assert search.with_max_timestamp() is None
    assert search.not_older(0, 0) is None


def test_an_empty_batch_that_compaction_left_is_skipped(tmp_path: Path) -> None:
    empty = encode_batch(replace(decode_header(batch([record(1)])), records_count=0), b"")
    log = small_log(tmp_path / "orders-0", [batch([record(0)]), empty, batch([record(2)])])
    found = RecordSearch(partition_at(log.parent)).at_or_after(1)
    assert found is not None
    assert found.record.offset == 2


def test_an_empty_time_index_of_a_small_log_is_not_named(tmp_path: Path) -> None:
    """A broker writes its first entry only after some kilobytes."""
    log = small_log(tmp_path / "orders-0", three_batches())
    for index in log.parent.glob("*index"):
        index.write_bytes(b"")
    search = RecordSearch(partition_at(log.parent))
    found = search.with_max_timestamp()
    assert found is not None
    assert found.record.offset == 29
    assert not search.unused_indexes


def test_a_batch_with_a_wrong_base_offset_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "p-0"
    path.mkdir()
    rows = batches(6)
    rows[2] = with_field(rows[2], 0, 266, 8)
    write_segment(path, 0, rows, every=100)
    partition = read_lone_partition(local(path), path.name)
    for offset in range(20):
        search = RecordSearch(partition)
        found = search.at_or_after(offset)
        expected = next((each for each in [*range(6), *range(9, 18)] if each >= offset), None)
        assert (None if found is None else found.record.offset) == expected
        assert bool(search.damages) == (offset >= 6)
    assert RecordSearch(partition).log_end_offset() == 18


@pytest.mark.parametrize("offsets", [[6, 6, 6], [8, 7, 6], [6, 7, 60]])
def test_a_record_that_does_not_fit_its_batch_is_no_answer(
    offsets: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "p-0"
    path.mkdir()
    rows = batches(6)
    rows[2] = with_offsets(rows[2], offsets)
    write_segment(path, 0, rows, every=100)
    partition = read_lone_partition(local(path), path.name)
    valid = {6: [6], 8: [8], 60: [6, 7]}[offsets[-1] if offsets[-1] > 6 else offsets[0]]
    for offset in range(6, 12):
        found = RecordSearch(partition).at_or_after(offset)
        expected = next(each for each in [*valid, *range(9, 18)] if each >= offset)
        assert found is not None
        assert found.record.offset == expected
