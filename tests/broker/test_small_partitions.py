"""A small partition that is loaded in plain Python has the outcome of the loader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.apply_target import apply_target
from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.log_directories import write_partition
from builders.recovery import of_producer
from builders.verified import END_OFFSET, LogModel
from builders.violations import CASES, OF_TRANSACTIONS, Case
from kdump.broker.loader import loader
from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.loader import load_directory, recover_usual
from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.small_partition import load_small
from kdump.formats.names import FileKind
from kdump.formats.record_batch import TRANSACTIONAL_FLAG
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.virtual_directory import VirtualDirectory, file_name

_EPOCHS = "leader-epoch-checkpoint"
_DAY_MS = 86_400_000
PLAIN_CASES = [each for each in CASES if each.code not in OF_TRANSACTIONS]


def by_loader(directory: VirtualDirectory, context: LoadContext) -> Recovered | Refusal:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "load_small", lambda *_: None)
        return load_directory(directory, context)


def written(path: Path, rng: random.Random) -> list[int]:
    """Write what a clean shutdown leaves of a random log; returns where its segments begin."""
    first = offset = rng.choice([0, 0, 50])
    logs: dict[int, bytes] = {}
    sequences = {7: 0, 8: 2**31 - 3}
    for _ in range(rng.randrange(1, 4)):
        base, parts = offset, []
        for _ in range(rng.choice([0, 1, 3, 6])):
            count = rng.randrange(1, 4)
            parts.append(a_batch(offset, count, sequences, rng))
            offset += count + rng.choice([0, 0, 0, 2])
        logs[base] = b"".join(parts)
        offset += rng.choice([0, 0, 0, 0, 3])
    epochs = rng.choice([b"0\n1\n0 0\n", b"0\n1\n0  0\n", b"0\n2\n0 0\n1 60\n", b""])
    folder = write_partition(path, logs, others={_EPOCHS: epochs})
    context = LoadContext(settings=settings(rng), recovery_point=rng.choice([0, 0, first]))
    outcome = by_loader(VirtualDirectory(local(folder)), context)
    if isinstance(outcome, Recovered):
        apply_target(folder, outcome.files)
    return sorted(logs)


def a_batch(offset: int, count: int, sequences: dict[int, int], rng: random.Random) -> bytes:
    producer_id = rng.choice([-1, -1, -1, 7, 8])
    at_ms = rng.choice([BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + offset, -1])
    records = [record(offset + step, timestamp=at_ms) for step in range(count)]
    if not rng.randrange(20):
        return of_producer(offset, 9, transactional=True, count=count)
    data = batch(
        records,
        partition_leader_epoch=rng.choice([0, 0, 0, 1, 2]),
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequences.get(producer_id, -1),
        attributes=TRANSACTIONAL_FLAG if not rng.randrange(40) else 0,
    )
    if producer_id >= 0:
        sequences[producer_id] = (sequences[producer_id] + count) % 2**31
    return data


def settings(rng: random.Random) -> IndexSettings:
    return IndexSettings(rng.choice([0, 100, 4096]), rng.choice([10 << 20, 10 << 20, 60]))


def disturb(folder: Path, rng: random.Random) -> None:
    """Change, pad, remove, add or rename some file."""
    path = rng.choice(sorted(each for each in folder.iterdir() if each.is_file()))
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) + 1)
    size = rng.choice([1, 4, 8, 12])
    what = rng.randrange(7)
    if what == 0:
        path.unlink()
    elif what == 1:
        path.write_bytes(data + bytes(size * 1000))
    elif what == 2:
        path.write_bytes(data[:at])
    elif what == 3:
        data[at : at + size] = rng.choice([bytes(size), rng.randbytes(size)])
        path.write_bytes(data)
    elif what == 4:
        suffix = rng.choice([".snapshot", ".txnindex", ".log", ".index", ".deleted"])
        (folder / f"{rng.choice([0, 3, 50, 70]):020d}{suffix}").write_bytes(data)
    elif what == 5:
        (folder / rng.choice(["notes", f"{_EPOCHS}.tmp", "7.snapshot"])).write_bytes(data)
    else:
        (folder / rng.choice([f"{file_name(0, FileKind.LOG)}.tmp", "folder"])).mkdir(exist_ok=True)


def contexts(bases: list[int], rng: random.Random) -> LoadContext:
    return LoadContext(
        is_clean=rng.choice([True, False]),
        recovery_point=rng.choice([0, *bases, bases[-1] + 4, 10**6, -1, 2**63 - 1]),
        log_start_offset=rng.choice([0, 0, 0, bases[-1]]),
        settings=settings(rng),
        now_ms=BASE_TIMESTAMP_MS + _DAY_MS,
        producer_id_expiration_ms=rng.choice([None, _DAY_MS - 3, 1]),
    )


def state_of(directory: VirtualDirectory) -> Any:
    contents = {name: directory.read(name) for name in directory.names()}
    return contents, directory.target_files(), sorted(directory.snapshot_names())


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([0, 0, 1, 2]))
def test_both_loaders_agree_about_every_partition(
    tmp_path_factory: pytest.TempPathFactory, seed: int, disturbances: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("logs") / "orders-1"
    bases = written(folder, rng)
    for _ in range(disturbances):
        disturb(folder, rng)
    context = contexts(bases, rng)
    first, second = (VirtualDirectory(local(folder)) for _ in range(2))
    outcome, expected = load_directory(first, context), by_loader(second, context)
    assert outcome == expected
    if isinstance(outcome, Recovered) and isinstance(expected, Recovered):
        assert list(outcome.files) == list(expected.files)
        assert state_of(first) == state_of(second)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "case", PLAIN_CASES, ids=[f"{each.code}: {each.name}" for each in PLAIN_CASES]
)
def test_both_loaders_agree_about_every_violation(
    case: Case, is_clean: bool, tmp_path: Path
) -> None:
    """What one of them alone looks at is a case that the other loads as usual."""
    folder = case.write(tmp_path / "logs", LogModel.plain())
    context = LoadContext(is_clean=is_clean, recovery_point=END_OFFSET if is_clean else 0)
    first, second = (VirtualDirectory(local(folder)) for _ in range(2))
    assert load_directory(first, context) == by_loader(second, context)
    assert state_of(first) == state_of(second)


@pytest.mark.parametrize("is_clean", [True, False])
def test_usual_partitions_are_loaded_in_plain_python(tmp_path: Path, is_clean: bool) -> None:
    logs = {base: of_producer(base, sequence=base, count=4) for base in (0, 4, 8)}
    folder = write_partition(tmp_path / "orders-1", logs, others={_EPOCHS: b"0\n1\n0 0\n"})
    outcome = by_loader(VirtualDirectory(local(folder)), LoadContext())
    assert isinstance(outcome, Recovered)
    apply_target(folder, outcome.files)
    found = recover_usual(local(folder), LoadContext(is_clean=is_clean))
    assert found is not None
    assert (found.log_end_offset, len(found.producers)) == (12, 1)


def test_a_partition_that_is_not_as_usual_is_left_to_the_loader(tmp_path: Path) -> None:
    folder = write_partition(tmp_path / "orders-1", {0: of_producer(0)[:-1]})
    directory = VirtualDirectory(local(folder))
    assert load_small(directory, LoadContext()) is None
    assert directory.untouched_sizes() is not None
