"""The ends that listings show: those of a starting broker, or marked."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from builders import damage
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.samples import seeds
from builders.small_file_damage import damage_small_files
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.names import PartitionState
from kdump.jobs.groups.consumed_logs import ConsumedLogs
from kdump.jobs.listing.partition_facts import loaded_or_reported
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import load_split
from kdump.jobs.lookup import LookupAnswer, LookupJob, Question, lookup_split
from kdump.jobs.problems.found_problems import HeldProblems
from kdump.jobs.transactions.partition_transactions import TxnsJob, TxnsResult, TxnsSplit
from kdump.log.bounds import read_bounds
from kdump.log.directory import DirectoryKind, LogDirectory, read_log_directory
from kdump.log.replicas import Replica
from kdump.log.special_times import SpecialTime
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local

MANY: Final = 200
FEW: Final = 4


def damage_log(rng: random.Random, folder: Path) -> None:
    """Cut, overwrite or extend a log; most often the last one."""
    logs = sorted(path for path in folder.glob("*.log") if path.stat().st_size)
    if not logs:
        return
    path = rng.choice([logs[-1], *logs])
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << rng.randrange(8)
        case 2:
            data[at : at + 4096] = bytes(min(4096, len(data) - at))
        case 3:
            data += rng.randbytes(rng.choice([3, 70, 500]))
        case _:
            data = rng.choice(damage.ANY_FILE)(rng, data)
    path.write_bytes(bytes(data))


def loaded(directory: LogDirectory) -> Iterator[tuple[Replica, int]]:
    """Each partition that a broker loads, and the end that a broker gives it."""
    for listed in directory.partitions:
        if listed.topic_partition is None or listed.state is not PartitionState.LIVE:
            continue
        outcome = RecoverJob().run(load_split(listed, directory, Settings()))
        partition = loaded_or_reported(listed, HeldProblems())
        if isinstance(outcome, Recovered) and partition is not None:
            yield Replica(directory, partition), outcome.log_end_offset


def listed_end(replica: Replica) -> Shown:
    directory = replica.log_directory
    found = read_bounds(replica.partition, directory.checkpoints, is_clean=directory.is_clean)
    return found.log_end_offset, found.is_end_certain


def looked_up_end(replica: Replica) -> Shown:
    found = LookupJob(Question(time=SpecialTime.LATEST)).run(lookup_split(replica))
    assert isinstance(found, LookupAnswer)
    return found.log_end_offset, found.is_end_certain


def consumed_end(replica: Replica) -> Shown:
    """The end that lag is counted to."""
    key = replica.partition.topic_partition
    assert key is not None
    found = ConsumedLogs({key: [replica]}, None).log(key)
    assert found is not None
    return found.end_offset, found.is_end_certain is True


def end_of_transactions(replica: Replica) -> Shown:
    key, directory = replica.partition.topic_partition, replica.log_directory
    assert key is not None
    start, flushed = directory.load_offsets(key)
    path = replica.partition.path
    split = TxnsSplit(path, name=path.name, log_start_offset=start, flushed_offset=flushed)
    found = TxnsJob().run(split)
    assert isinstance(found, TxnsResult)
    return found.log_end_offset, found.is_end_certain


Shown = tuple[int | None, bool]
"""An end that a command shows, and whether it says that it is a broker's."""
READERS: Final = (listed_end, looked_up_end, consumed_end, end_of_transactions)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean/d1", "clean/d2", "crashed/d1"])
@pytest.mark.parametrize("seed", seeds(0, count=MANY, in_main=FEW))
def test_a_certain_end_is_that_of_a_starting_broker(
    fixtures: Path, quick_path: Path, name: str, seed: int
) -> None:
    rng = random.Random(seed)
    shutil.copytree(fixtures / "out" / name, quick_path / "d", symlinks=True)
    for folder in sorted(path.parent for path in (quick_path / "d").glob("*/partition.metadata")):
        kind = rng.choice(["small files", "log", "both", "none"])
        if kind in ("small files", "both"):
            damage_small_files(rng, folder)
        if kind in ("log", "both"):
            damage_log(rng, folder)
    directory = read_log_directory(local(quick_path / "d"), DirectoryKind.LOG_DIRECTORY)
    wrong = [
        (read.__name__, str(replica.partition.path), found, end)
        for replica, end in loaded(directory)
        for read in READERS
        for found, is_certain in [read(replica)]
        if is_certain and found != end
    ]
    assert wrong == []


@pytest.mark.parametrize("read", READERS)
def test_the_ends_of_a_valid_directory_are_certain(
    fixtures: Path, read: Callable[[Replica], Shown]
) -> None:
    path = local(fixtures / "out" / "clean" / "d1")
    directory = read_log_directory(path, DirectoryKind.LOG_DIRECTORY)
    uncertain = [
        replica.partition.path.name for replica, _ in loaded(directory) if not read(replica)[1]
    ]
    assert uncertain == ["__cluster_metadata-0"]


@pytest.mark.parametrize("command", ["ls", "info"])
def test_an_end_that_a_broker_may_not_have_is_marked(
    fixtures: Path, tmp_path: Path, command: str
) -> None:
    """The last entry of the offset index leads past the end: a broker hides all records."""
    shutil.copytree(fixtures / "out" / "clean" / "d1", tmp_path / "d")
    partition = tmp_path / "d" / "codec-zstd-0"
    index = partition / f"{0:020d}.index"
    before = run_kdump([command, str(partition)], tmp_path).stdout
    data = bytearray(index.read_bytes())
    data[-3] = 0xFF
    index.write_bytes(data)
    after = run_kdump([command, str(partition)], tmp_path).stdout
    lines = run_kdump([command, str(partition), "--output", "jsonl"], tmp_path).stdout
    (said,) = (each for each in objects(lines) if "log_end_offset" in each)
    assert (said["log_end_offset"], said["is_end_certain"]) == (406, False)
    assert b" 406" in before
    assert b"~406" in after
    assert b"~" not in before


def damage_ends(folder: Path) -> None:
    """Flip a bit in the last batch of all logs: a broker does not verify it after a clean stop."""
    for path in folder.glob("*/*.log"):
        if path.stat().st_size and not path.parent.name.startswith("__"):
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)


@pytest.mark.parametrize(
    "words",
    [["lookup", "--partition", "codec-zstd-0", "--timestamp", "latest"], ["groups"]],
    ids=["lookup", "groups"],
)
def test_an_end_by_checksums_that_a_broker_does_not_have_is_marked(
    fixtures: Path, tmp_path: Path, words: list[str]
) -> None:
    shutil.copytree(fixtures / "out" / "clean" / "d1", tmp_path / "d1", symlinks=True)

    def said() -> tuple[set[bool], bytes]:
        lines = run_kdump([*words, "d1", "--output", "jsonl"], tmp_path).stdout
        found = {each["is_end_certain"] for each in objects(lines) if each.get("log_end_offset")}
        return found, run_kdump([*words, "d1"], tmp_path).stdout

    certain, shown = said()
    assert certain == {True}
    assert b"~" not in shown
    damage_ends(tmp_path / "d1")
    certain, shown = said()
    assert certain == {False}
    assert b"~" in shown


def test_lag_up_to_an_uncertain_end_is_marked(fixtures: Path, tmp_path: Path) -> None:
    crashed = str(fixtures / "out" / "crashed" / "d1")
    rows = objects(run_kdump(["groups", crashed, "--output", "jsonl"], tmp_path).stdout)
    lags = [each["is_lag_certain"] for each in rows if each.get("type") == "group"]
    assert lags == [False]
    shown = run_kdump(["groups", crashed], tmp_path).stdout
    assert b"~834  ~741 " in shown
    assert b"~: a starting broker may end 1 log elsewhere, with another lag" in shown


def test_the_end_above_an_uncertain_last_stable_offset_is_marked(
    fixtures: Path, tmp_path: Path
) -> None:
    crashed = str(fixtures / "out" / "crashed" / "d1")
    rows = [
        each
        for each in objects(run_kdump(["txns", crashed, "--output", "jsonl"], tmp_path).stdout)
        if each.get("type") == "partition"
    ]
    assert {each["is_end_certain"] for each in rows} == {False}
    shown = run_kdump(["txns", crashed], tmp_path).stdout.decode()
    listed = [each for each in rows if each["last_stable_offset"] != each["log_end_offset"]]
    assert all(f"~{each['log_end_offset']} " in shown for each in listed)
