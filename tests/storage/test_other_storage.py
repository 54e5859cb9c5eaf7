"""Everything that reads gives the same from a storage that is no local disk, and from any process.

A new kind of storage needs no more than what the one in memory has.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import pytest

from builders.memory_storage import MemoryStorage
from kdump.check.findings import Finding
from kdump.check.part import Level
from kdump.dump.dumped_file import DumpedFile
from kdump.dump.files import DumpKind, DumpOptions, dump_rows, dump_text
from kdump.dump.report import DumpReport
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.jobs.node_identity import NodeIdentity, read_node_directory
from kdump.jobs.verify.verify import VerifyRequest, VerifySummary, VerifyTarget, verify
from kdump.jobs.writing.execution import Writing, locked_for_writing
from kdump.log.directory import read_log_directory
from kdump.scan.batches import Stop, Window
from kdump.scan.walk import walk_segment
from kdump.state.metadata.settings import read_settings
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location, NotLocalError

LOG_DIRECTORIES = (
    "clean/d1",
    "clean-mv39/meta",
    "crashed/d2",
    "legacy/logs",
    "leftover-3-swap-log-only/logs",
)
NOW_MS = 1_800_000_000_000
HERE = local("")


@pytest.fixture(params=LOG_DIRECTORIES, scope="module")
def directory(request: pytest.FixtureRequest, fixtures: Path) -> Path:
    path: Path = fixtures / "out" / request.param
    return path


@pytest.fixture(scope="module")
def in_memory(directory: Path) -> Location:
    return MemoryStorage.copied(directory)


def files_below(location: Location) -> Iterator[Location]:
    for entry in sorted(location.entries()):
        if entry.kind is EntryKind.DIRECTORY:
            yield from files_below(location / entry.name)
        else:
            yield location / entry.name


def listed(location: Location) -> object:
    """Return the listing of a log directory, without its location."""
    found = read_log_directory(location)
    partitions = [
        msgspec.structs.replace(
            each,
            path=HERE,
            segments=tuple(msgspec.structs.replace(every, hole_bytes=0) for every in each.segments),
            ownership=None,
        )
        for each in found.partitions
    ]
    return (
        msgspec.structs.replace(found, path=HERE, partitions=(), problems=()),
        partitions,
        list(map(str, found.problems)),
    )


def scanned(location: Location) -> list[str]:
    """Return the result of a scan of every log."""
    found = []
    for log in files_below(location):
        if log.name.endswith(".log"):
            with log.open_file() as source:
                for step in walk_segment(source, with_records=True):
                    what = step.batches.crc.tolist() if isinstance(step, Window) else step
                    found.append(f"{log}: {what if isinstance(what, list | Stop) else ''}")
    return found


def dumped(location: Location) -> list[object]:
    """Return the dump of every file as text and rows, with its problems."""
    said: list[object] = []
    for path in files_below(location):
        kind = DumpKind.of(path.name)
        if kind is not None:
            file = DumpedFile(str(path), location.storage)
            report = DumpReport(said.append)
            text = dump_text(file, kind, DumpOptions(), report)
            said += [str(path), b"".join(map(bytes, text))]
            said += dump_rows(file, kind, DumpOptions(), report)
            report.finish()
    return said


def checked(location: Location, processes: int = 1) -> list[object]:
    """Return every finding, and the summary without its duration."""
    found = read_log_directory(location)
    request = VerifyRequest(
        [VerifyTarget(each, found) for each in found.partitions],
        [found],
        Level.DEEP,
        NOW_MS,
        read_settings([found], {}),
    )
    options = EngineOptions(choice=EngineChoice.LOCAL, processes=processes)
    said = verify(request, options)
    return [
        msgspec.structs.replace(each, seconds=0) if isinstance(each, VerifySummary) else each
        for each in said
        if isinstance(each, Finding | VerifySummary)
    ]


def identified(location: Location) -> list[object]:
    """Return the identity of the node, and what is wrong with it."""
    node = NodeIdentity([read_node_directory(location)])
    found = [each.meta_properties for each in node.directories]
    return [found, [each.finding.code for each in node.problems], list(node.voters.values())]


READERS = (listed, scanned, dumped, checked, identified)


@pytest.mark.parametrize("read", READERS)
def test_a_storage_in_memory_reads_as_the_local_disk(
    directory: Path, in_memory: Location, read: Callable[[Location], object]
) -> None:
    expected = read(local(directory))
    assert expected
    assert read(in_memory) == expected


@pytest.fixture(scope="module")
def legacy(fixtures: Path) -> Path:
    return fixtures / "out" / "legacy" / "logs"


@pytest.mark.slow
def test_a_pickled_location_reads_the_same_in_another_process(legacy: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    in_memory = MemoryStorage.copied(legacy)
    with ProcessPoolExecutor(1, mp_context=spawned) as other:
        found = [other.submit(read, in_memory).result() for read in READERS]
    assert found == [read(local(legacy)) for read in READERS]


@pytest.mark.slow
def test_workers_open_the_locations_of_their_splits(legacy: Path) -> None:
    assert checked(MemoryStorage.copied(legacy), processes=2) == checked(local(legacy))


def test_commands_that_write_refuse_another_storage(legacy: Path) -> None:
    in_memory = MemoryStorage.copied(legacy)
    with (
        pytest.raises(NotLocalError, match="is not on a local disk"),
        locked_for_writing([in_memory], Writing("recover")),
    ):
        pytest.fail("it was locked")
