"""Replicas compared, against a plain model of their records."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.log_directories import write_partition
from builders.message_sets import message, wrapper
from builders.verified import with_body
from kdump.broker.loader.load_context import LoadContext
from kdump.formats import names
from kdump.formats.checkpoints import encode_leader_epoch_checkpoint
from kdump.formats.compression import Codec
from kdump.formats.record_batch import encode_record
from kdump.jobs.diff.comparison import OnlyOnOne
from kdump.jobs.diff.diff import DiffJob, DiffSplit, ReplicaToCompare, compare_replicas
from kdump.jobs.diff.record_rows import RecordRows
from kdump.jobs.diff.results import PairResult, PartitionDiff
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.epochs.follower_truncation import Truncation
from kdump.storage.local_disk import local

CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)


@dataclass(frozen=True)
class Written:
    """A record of the model."""

    epoch: int
    value: bytes


Log = dict[int, Written]
"""Records by offset."""


@dataclass(frozen=True)
class Model:
    """A replica of the model.

    Attributes:
        written: what its segments have, also before the log start offset.
        start: the log start offset.
        cleaned_to: how far the cleaner got.
    """

    written: Log
    start: int = 0
    cleaned_to: int = 0

    @property
    def log(self) -> Log:
        return {offset: each for offset, each in self.written.items() if offset >= self.start}

    @property
    def end(self) -> int:
        return max(self.written, default=self.start - 1) + 1


def chunks(log: Log, rng: random.Random) -> list[list[int]]:
    """The offsets of each batch: those of one epoch only."""
    found = []
    for _, group in itertools.groupby(sorted(log), key=lambda offset: log[offset].epoch):
        offsets = list(group)
        while offsets:
            size = rng.randrange(1, 9)
            found.append(offsets[:size])
            offsets = offsets[size:]
    return found


def encoded(log: Log, offsets: list[int], rng: random.Random) -> bytes:
    codec = rng.choice(CODECS)
    if log[offsets[0]].epoch < 0:
        entries = [
            message(at - offsets[0], b"key", log[at].value, timestamp=BASE_TIMESTAMP_MS + at)
            for at in offsets
        ]
        if len(offsets) == 1:
            return message(
                offsets[0], b"key", log[offsets[0]].value, timestamp=BASE_TIMESTAMP_MS + offsets[0]
            )
        return wrapper(entries, Codec.GZIP, offset=offsets[-1])
    return batch(
        [record(at, value=log[at].value) for at in offsets],
        codec=codec,
        partition_leader_epoch=log[offsets[0]].epoch,
    )


def write(path: Path, model: Model, rng: random.Random) -> Path:
    """Write a replica in two or three segments."""
    logs = {min([model.start, *model.written]): b""}
    epochs = EpochHistory()
    for offsets in chunks(model.written, rng):
        if rng.random() < 0.2:
            logs[offsets[0]] = b""
        logs[max(logs)] += encoded(model.written, offsets, rng)
        if model.written[offsets[0]].epoch >= 0:
            epochs.assign(model.written[offsets[0]].epoch, offsets[0])
    others = {names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint(epochs.entries)}
    return write_partition(path, logs, others=others)


def split_of(paths: Sequence[Path], models: Sequence[Model]) -> DiffSplit:
    return DiffSplit(
        local(paths[0]),
        key=None,
        is_one_topic=False,
        replicas=tuple(
            ReplicaToCompare(
                side,
                local(path),
                "orders-0",
                LoadContext(is_clean=True, log_start_offset=model.start),
                cleaned_to=model.cleaned_to,
            )
            for side, (path, model) in enumerate(zip(paths, models, strict=True))
        ),
    )


def compared(folder: Path, models: Sequence[Model], seeds: Sequence[int]) -> PartitionDiff:
    paths = [
        write(folder / str(side), model, random.Random(seed))
        for side, (model, seed) in enumerate(zip(models, seeds, strict=True))
    ]
    found = compare_replicas(split_of(paths, models))
    assert isinstance(found, PartitionDiff)
    return found


def random_models(rng: random.Random) -> list[Model]:
    """Replicas that share the beginning of their logs; some lack records, have others, or part."""
    epochs = sorted(rng.sample(range(6), rng.randrange(1, 4)))
    length = rng.randrange(1, 80)
    shared = {
        offset: Written(epochs[offset * len(epochs) // length], b"v%d" % offset)
        for offset in range(length)
    }
    if rng.random() < 0.2:
        shared |= {at: Written(-1, b"old %d" % at) for at in range(rng.randrange(length + 1))}
    models: list[Model] = []
    for number in range(rng.choice([2, 2, 3])):
        kept = rng.randrange(length // 2, length + 1)
        log = {offset: each for offset, each in shared.items() if offset < kept}
        if rng.random() < 0.5:
            epoch = 6 + rng.randrange(3)
            own = range(kept, kept + rng.randrange(12))
            log |= {offset: Written(epoch, b"%d own %d" % (number, offset)) for offset in own}
        for offset in rng.sample(sorted(log), min(len(log), rng.choice([0, 0, 1, 4]))):
            log[offset] = Written(log[offset].epoch, b"other %d" % number)
        for offset in rng.sample(sorted(log), min(len(log), rng.choice([0, 0, 1, 9]))):
            del log[offset]
        start = rng.choice([0, 0, rng.randrange(max(log, default=0) + 1)])
        if rng.random() < 0.5:
            log = {offset: each for offset, each in log.items() if offset >= start}
        models.append(Model(log, start, rng.choice([0, 0, rng.randrange(length + 1)])))
    return models


@dataclass
class Expected:
    """What holds for two replicas."""

    parted_at: int | None
    corrupt: list[int]
    left_only: list[int]
    right_only: list[int]
    left_compacted: int
    right_compacted: int


def expected_of(left: Model, right: Model) -> Expected:
    start = max(left.start, right.start)
    by_epoch, different = [], []
    only: list[list[int]] = [[], []]
    compacted = [0, 0]
    for offset in sorted(left.log.keys() | right.log.keys()):
        mine, theirs = left.log.get(offset), right.log.get(offset)
        if offset < start:
            continue
        if mine is not None and theirs is not None:
            if mine.epoch >= 0 <= theirs.epoch and mine.epoch != theirs.epoch:
                by_epoch.append(offset)
            if mine.value != theirs.value:
                different.append(offset)
                only[0].append(offset)
                only[1].append(offset)
            continue
        side, other = (0, right) if theirs is None else (1, left)
        if offset >= other.end:
            only[side].append(offset)
        elif offset < other.cleaned_to:
            compacted[1 - side] += 1
        else:
            different.append(offset)
            only[side].append(offset)
    parted = min([*by_epoch, *different], default=None)
    limit = min(by_epoch, default=10**9)
    corrupt = [
        offset
        for offset in different
        if offset in left.log
        and offset in right.log
        and left.log[offset].epoch == right.log[offset].epoch >= 0
        and offset < limit
    ]
    return Expected(parted, corrupt, only[0], only[1], *compacted)


@pytest.mark.parametrize("seed", range(4))
def test_random_replicas_differ_where_their_records_do(seed: int, quick_path: Path) -> None:
    rng = random.Random(seed)
    for case in range(25):
        models = random_models(rng)
        layout = rng.randrange(1000)
        seeds = [rng.choice([layout, rng.randrange(1000)]) for _ in models]
        found = compared(quick_path / str(case), models, seeds)
        assert [each.end_offset for each in found.replicas] == [each.end for each in models]
        for pair in found.pairs:
            check(pair, models[pair.left], models[pair.right])
            for truncation, only, side in (
                (pair.left_truncation, pair.left_only, pair.left),
                (pair.right_truncation, pair.right_only, pair.right),
            ):
                written = chunks(models[side].written, random.Random(seeds[side]))
                check_lost(truncation, only, expected_only(models, pair, side), written)
        check_losses(found, models)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_start_drops_from_a_damaged_replica_is_lost_if_it_leads(
    seed: int, quick_path: Path
) -> None:
    rng = random.Random(seed)
    for case in range(15):
        models = random_models(rng)
        seeds = [rng.randrange(1000) for _ in models]
        paths = [
            write(quick_path / str(case) / str(side), model, random.Random(each))
            for side, (model, each) in enumerate(zip(models, seeds, strict=True))
        ]
        side = rng.randrange(len(models))
        written = chunks(models[side].written, random.Random(seeds[side]))
        if not written:
            continue
        number = rng.randrange(len(written))
        damage_batch(paths[side], number)
        damaged = written[number]
        of_start = LoadContext(log_start_offset=models[side].start)
        split = split_of(paths, models)
        replicas = [
            replace(each, context=of_start) if at == side else each
            for at, each in enumerate(split.replicas)
        ]
        found = compare_replicas(replace(split, replicas=tuple(replicas)))
        assert isinstance(found, PartitionDiff)
        readable = [
            {at: each for at, each in model.log.items() if number != side or at not in damaged}
            for number, model in enumerate(models)
        ]
        kept = {at: each for at, each in readable[side].items() if at < damaged[0]}
        leader, replica = models[side], found.replicas[side]
        unreadable = taken_by_damage(models[side], written, number)
        lost = {
            (offset, each.value)
            for log in readable
            for offset, each in log.items()
            if offset >= leader.start
            and (
                offset >= leader.cleaned_to
                or offset >= replica.end_offset
                or offset in readable[side]
                or offset in unreadable
            )
            and kept.get(offset, Written(-2, b"")).value != each.value
        }
        assert replica.lost_if_leading == len(lost)
        assert replica.is_damaged == bool({*readable[side]} - {*kept})


def taken_by_damage(model: Model, written: list[list[int]], number: int) -> range:
    """The offsets between the batches around a damaged one; an old set may begin anywhere."""
    following = written[number + 1][0] if number + 1 < len(written) else 0
    if not following or model.written[following].epoch < 0:
        return range(0)
    return range(written[number - 1][-1] + 1 if number else 0, following)


def damage_batch(partition: Path, number: int) -> None:
    """Flip a bit at the end of a batch, counted over all segments."""
    for path in sorted(partition.glob("*.log")):
        content = bytearray(path.read_bytes())
        position = 0
        while position < len(content):
            size = 12 + int.from_bytes(content[position + 8 : position + 12], "big")
            if number == 0:
                content[position + size - 1] ^= 1
                path.write_bytes(content)
                return
            number -= 1
            position += size


def check(pair: PairResult, left: Model, right: Model) -> None:
    expected = expected_of(left, right)
    ranges = [at for each in pair.parting.corrupt.ranges for at in range(each.start, each.end)]
    assert ranges == expected.corrupt
    assert pair.parting.corrupt_records == len(expected.corrupt)
    assert pair.parting.offset == expected.parted_at
    assert pair.left_only.records == len(expected.left_only)
    assert pair.right_only.records == len(expected.right_only)
    assert pair.left_only.compacted_records == expected.right_compacted
    assert pair.right_only.compacted_records == expected.left_compacted


def expected_only(models: Sequence[Model], pair: PairResult, side: int) -> list[int]:
    expected = expected_of(models[pair.left], models[pair.right])
    return expected.left_only if side == pair.left else expected.right_only


def check_lost(
    truncation: Truncation | None, only: OnlyOnOne, offsets: list[int], written: list[list[int]]
) -> None:
    """A truncation deletes whole batches, also the one within which it falls."""
    if truncation is None or truncation.starts_over:
        return
    end = truncation.end_offset
    lost_from = min((each[0] for each in written if each[0] < end <= each[-1]), default=end)
    assert only.lost_records == sum(offset >= lost_from for offset in offsets)


def check_losses(found: PartitionDiff, models: Sequence[Model]) -> None:
    for leader, replica in zip(models, found.replicas, strict=True):
        lost = {
            (offset, each.value)
            for other in models
            for offset, each in other.log.items()
            if offset >= leader.start
            and (offset >= leader.cleaned_to or offset >= leader.end or offset in leader.log)
            and leader.log.get(offset, Written(-2, b"")).value != each.value
        }
        assert replica.lost_if_leading == len(lost)


def plain(values: Sequence[bytes], epoch: int = 0, first: int = 0) -> Log:
    return {first + at: Written(epoch, value) for at, value in enumerate(values)}


def two(folder: Path, left: Model, right: Model) -> tuple[PartitionDiff, PairResult]:
    found = compared(folder, [left, right], [0, 1])
    return found, found.pairs[0]


def test_a_record_with_another_value_in_the_same_epoch_is_corruption(quick_path: Path) -> None:
    log = plain([b"a", b"b", b"c"])
    _, pair = two(quick_path, Model(log), Model(log | plain([b"X"], first=1)))
    assert (pair.parting.corrupt_records, pair.parting.offset) == (1, 1)
    assert pair.left_truncation is not None
    assert pair.left_truncation.end_offset == 3


def test_the_same_records_in_another_epoch_part_but_lose_nothing(quick_path: Path) -> None:
    shared = plain([b"a", b"b"])
    left = Model(shared | plain([b"retried"], epoch=1, first=2))
    right = Model(shared | plain([b"retried"], epoch=2, first=2))
    _, pair = two(quick_path, left, right)
    assert (pair.parting.by_epoch, pair.parting.by_content) == (2, None)
    assert (pair.left_only.records, pair.right_only.records) == (0, 0)
    assert pair.left_truncation is not None
    assert pair.left_truncation.end_offset == 2


def test_a_follower_that_starts_over_loses_all_its_records(quick_path: Path) -> None:
    left = Model(plain([b"a", b"b", b"c"]))
    right = Model(plain([b"x", b"y"], epoch=1, first=10), start=10)
    _, pair = two(quick_path, left, right)
    assert pair.left_truncation is not None
    assert pair.left_truncation.starts_over
    assert pair.left_only.lost_records == 3


def test_batches_before_the_log_start_do_not_count(quick_path: Path) -> None:
    log = plain([b"%d" % offset for offset in range(12)])
    _, pair = two(quick_path, Model(log, start=9), Model(plain([b"0", b"1"]), start=0))
    assert pair.left_only.records == 3


def test_the_result_can_be_pickled_and_is_that_of_the_job(quick_path: Path) -> None:
    models = [Model(plain([b"a", b"b"])), Model(plain([b"a", b"c"]))]
    paths = [write(quick_path / str(n), each, random.Random(n)) for n, each in enumerate(models)]
    split = split_of(paths, models)
    result = pickle.loads(pickle.dumps(DiffJob())).run(pickle.loads(pickle.dumps(split)))
    assert pickle.loads(pickle.dumps(result)) == compare_replicas(split)


@pytest.mark.parametrize("at", range(0, 400, 23))
def test_a_log_cut_at_any_byte_is_a_prefix_up_to_its_last_valid_batch(
    at: int, quick_path: Path
) -> None:
    log = plain([b"value %d" % offset for offset in range(12)])
    paths = [write(quick_path / name, Model(log), random.Random(5)) for name in ("whole", "cut")]
    cut = max((quick_path / "cut").glob("*.log"))
    cut.write_bytes(cut.read_bytes()[:at])
    found = compare_replicas(split_of(paths, [Model(log), Model(log)]))
    assert isinstance(found, PartitionDiff)
    (pair,) = found.pairs
    assert pair.parting.offset is None
    assert pair.parting.same_records == found.replicas[1].end_offset
    assert pair.left_only.records == 12 - found.replicas[1].end_offset
    assert pair.right_only.records == 0


def test_damage_in_the_middle_is_no_difference(quick_path: Path) -> None:
    log = plain([b"value %d" % offset for offset in range(40)])
    paths = [write(quick_path / name, Model(log), random.Random(7)) for name in ("ok", "damaged")]
    first = min((quick_path / "damaged").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[70] ^= 1
    first.write_bytes(content)
    found = compare_replicas(split_of(paths, [Model(log), Model(log)]))
    assert isinstance(found, PartitionDiff)
    (pair,) = found.pairs
    assert pair.parting.offset is None
    assert (pair.left_only.records, pair.right_only.records) == (0, 0)
    assert pair.left_only.unreadable_records > 0
    assert found.replicas[1].damage_count == 1
    # Leading would lose what only the other one can read.
    assert found.replicas[1].lost_if_leading == pair.left_only.unreadable_records


def test_records_that_only_one_has_are_listed_with_their_offsets(quick_path: Path) -> None:
    log = plain([b"a", b"b", b"c", b"d"])
    models = [Model(log), Model(log | plain([b"X"], first=1) | plain([b"e", b"f"], first=4))]
    paths = [write(quick_path / str(n), each, random.Random(n)) for n, each in enumerate(models)]
    listed: list[tuple[int, int, int, bytes]] = []

    def take(holder: int, other: int, rows: RecordRows) -> None:
        values = rows.value.to_pylist()
        listed.extend(
            (holder, other, offset, value)
            for offset, value in zip(rows.offset.tolist(), values, strict=True)
        )

    compare_replicas(split_of(paths, models), on_records=take)
    assert sorted(listed) == [(0, 1, 1, b"b"), (1, 0, 1, b"X"), (1, 0, 4, b"e"), (1, 0, 5, b"f")]


@pytest.mark.parametrize("claimed", [4, 1, 900], ids=["twice", "before", "after"])
def test_records_with_impossible_offsets_are_unreadable(claimed: int, quick_path: Path) -> None:
    """Offsets of a batch must rise from its first to its last; a valid checksum does not say so."""
    bodies = [record(4), replace(record(4), offset=claimed)]
    body = b"".join(encode_record(each, 4, each.timestamp) for each in bodies)
    forged = with_body(batch([record(4), record(5)]), body)
    batches = [batch([record(first), record(first + 1)]) for first in range(0, 10, 2)]
    logs = [b"".join(batches), b"".join([*batches[:2], forged, *batches[3:]])]
    paths = [write_partition(quick_path / str(number), {0: log}) for number, log in enumerate(logs)]
    found = compare_replicas(split_of(paths, [Model({}), Model({})]))
    assert isinstance(found, PartitionDiff)
    (pair,) = found.pairs
    assert pair.parting.offset is None
    assert found.replicas[1].damage_count == 1
    assert found.replicas[1].unreadable[0].end == 6


def test_an_unreadable_record_is_named_with_its_segment(quick_path: Path) -> None:
    """Also where small segments are compared as one."""
    body = b"".join(encode_record(record(2), 2, record(2).timestamp) for _ in range(2))
    forged = with_body(batch([record(2), record(3)]), body)
    whole = [batch([record(first), record(first + 1)]) for first in range(0, 6, 2)]
    paths = [
        write_partition(quick_path / str(number), {0: whole[0], 2: second + whole[2]})
        for number, second in enumerate([whole[1], forged])
    ]
    found = compare_replicas(split_of(paths, [Model({}), Model({})]))
    assert isinstance(found, PartitionDiff)
    (damage,) = found.replicas[1].damages
    assert damage.path == str(paths[1] / "00000000000000000002.log")
    assert (damage.start, damage.end) == (0, len(forged))
