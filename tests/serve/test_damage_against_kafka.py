"""What is served of damaged logs, beside what Kafka's loader keeps of a copy of them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.damage import batch_positions
from builders.loading import Clock, LoaderServer, files_of
from builders.log_directories import write_log_directory
from builders.object_server import object_server
from builders.packed import pack
from builders.serving import RunningServer, opened
from builders.valid_batches import offsets_of, valid_batches_of
from builders.violations import CASES, Case
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats.names import TopicPartition
from kdump.log.special_times import IsolationLevel
from kdump.serve.served_log import CorruptBatch, ServedLog
from kdump.storage.location import Location
from kdump.storage.places import parse_location

pytestmark = pytest.mark.differential

OF_A_PARTITION: Final = (
    *("torn", "zero", "batch", "control", "offset", "segment", "time-index", "transaction-index"),
    *("leftover", "swap", "snapshot", "epoch", "index", "load-refused"),
)
"""How the codes of damage begin that is in the directory of a partition."""
LEVEL: Final = IsolationLevel.READ_UNCOMMITTED


def cases() -> list[Case]:
    return [each for each in CASES if each.code.startswith(OF_A_PARTITION)]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log directory of a killed broker with a partition for each kind of damage."""
    folder = tmp_path_factory.mktemp("damaged")
    root = write_log_directory(folder / "logs", clean=False)
    for number, case in enumerate(cases()):
        partition = case.write(folder / str(number))
        partition.rename(root / f"case-{number}")
    return root


@pytest.fixture(scope="module")
def loaded(damaged: Path, loader_server: LoaderServer) -> Path:
    """Return a copy as Kafka's loader leaves it, without the partitions that it refuses."""
    copy = damaged.with_name("loaded")
    shutil.copytree(damaged, copy)
    for name in loader_server.load(copy, IndexSettings(), Clock()):
        shutil.rmtree(copy / name)
    return copy


def served(log: ServedLog, *, goes_on: bool) -> Iterator[bytes]:
    """The batches that a consumer gets; after an error it asks for the next offset, or ends."""
    at, end = log.log_start_offset(LEVEL), log.end_offset(LEVEL)
    while at < end:
        try:
            found = log.fetch(at, 1, LEVEL, at_least_one=True).records
        except CorruptBatch:
            if not goes_on:
                return
            at += 1
            continue
        data = b"".join(part for part in found.parts if isinstance(part, bytes))
        assert batch_positions(data) == [0]
        yield data
        following = offsets_of(data)[1] + 1
        assert following > at
        at = following


def log_of(server: RunningServer, number: int) -> ServedLog:
    found = server.cluster.partition(TopicPartition("case", number))
    assert found is not None
    assert isinstance(found.log, ServedLog)
    return found.log


def offsets(batches: list[bytes]) -> set[int]:
    return {
        offset
        for first, last in map(offsets_of, batches)
        if last - first < 100
        for offset in range(first, last + 1)
    }


def told(server: RunningServer, number: int) -> set[int]:
    """The offsets that were named as lost."""
    ranges = server.notices.lost_ranges(TopicPartition("case", number))
    return {offset for start, end in ranges for offset in range(start, end)}


@pytest.mark.parametrize("skips_damage", [False, True], ids=["refused", "left out"])
def test_a_consumer_gets_what_kafka_keeps_or_is_told_of_it(
    skips_damage: bool, damaged: Path, loaded: Path
) -> None:
    problems = []
    compared = 0
    with opened(damaged, skips_damage=skips_damage) as server:
        for number, case in enumerate(cases()):
            log = log_of(server, number)
            found = [*served(log, goes_on=True)]
            written = valid_batches_of(as_named(files_of(damaged / f"case-{number}")))
            empty = [each for each in found if each[57:61] == bytes(4)]
            if not {*found} - {*empty} <= {*written}:
                problems.append(f"{case.name}: a batch was served that is not valid")
            first = [*served(log, goes_on=False)]
            assert first == found[: len(first)]
            assert len(first) == len(found) or told(server, number), case.name
            path = loaded / f"case-{number}"
            if path.exists():
                kept = offsets(valid_batches_of(files_of(path)))
                missing = kept - offsets(found) - told(server, number)
                if missing:
                    problems.append(f"{case.name}: lacks {sorted(missing)} without a word")
                compared += 1
    assert problems == []
    assert compared > 40


@contextlib.contextmanager
def kept_in(kind: str, log_dir: Path) -> Iterator[Location]:
    """A copy of a log directory that is read where it is."""
    with contextlib.ExitStack() as stack:
        if kind == "archive":
            yield parse_location(pack(log_dir, log_dir.with_name("logs.tar")))
        else:
            store = stack.enter_context(object_server())
            yield parse_location(store.upload(log_dir, "logs"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["archive", "object store"])
def test_a_damaged_copy_is_served_as_its_directory(kind: str, damaged: Path) -> None:
    with (
        kept_in(kind, damaged) as place,
        opened(place, skips_damage=True) as copy,
        opened(damaged, skips_damage=True) as disk,
    ):
        for number, case in enumerate(cases()):
            first, second = log_of(copy, number), log_of(disk, number)
            assert [*served(first, goes_on=True)] == [*served(second, goes_on=True)], case.name
            assert told(copy, number) == told(disk, number), case.name
    with kept_in(kind, damaged) as place, opened(place) as copy, opened(damaged) as disk:
        for number, case in enumerate(cases()):
            first, second = log_of(copy, number), log_of(disk, number)
            assert [*served(first, goes_on=False)] == [*served(second, goes_on=False)], case.name


def as_named(files: dict[str, bytes]) -> dict[str, bytes]:
    """With the names that a starting broker gives to complete swaps."""
    return {name.removesuffix(".swap"): content for name, content in files.items()}
