"""Random malformed batches amid valid ones: all readers agree, with Kafka's consumer too.

A consumer stops at a damaged batch; kdump reports it and continues. Where kdump reports nothing, it
reads what a consumer reads.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import run_kdump
from builders.java_server import JavaServer
from builders.malformed_batches import MalformedLog, malformed_log
from builders.samples import seeds
from kdump.formats import names
from kdump.formats.record_batch import HEADER_BYTES, decode_header
from kdump.log.directory import read_log_directory
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.log.record_search import RecordSearch
from kdump.storage.local_disk import local

PROGRAM: Final = "org.apache.kafka.clients.consumer.internals.ConsumerServer"
PARTITIONS: Final = 100
FEW: Final = 1
"""In so many of them may a wrong batch count instead of a valid one, as the manual says.

That is where the offsets of two batches conflict and neither continues those around it.
"""
LOG: Final = "00000000000000000000.log"


@pytest.fixture(scope="module")
def consumers(
    java_classpath: str, newest_consumer_classpath: str
) -> Iterator[tuple[JavaServer, JavaServer]]:
    """Those of 4.3.1 and of the newest Kafka."""
    with (
        JavaServer(java_classpath, PROGRAM) as known,
        JavaServer(newest_consumer_classpath, PROGRAM) as newest,
    ):
        yield known, newest


@pytest.fixture(scope="module")
def loader(java_classpath: str) -> Iterator[JavaServer]:
    with JavaServer(java_classpath, "LookupServer") as running:
        yield running


def write(directory: Path, logs: list[MalformedLog]) -> None:
    """As after a clean shutdown, so that a broker loads the logs as they are."""
    for number, log in enumerate(logs):
        partition = directory / f"t-{number}"
        partition.mkdir(parents=True)
        (partition / LOG).write_bytes(log.data)
        for suffix in (".index", ".timeindex"):
            (partition / LOG).with_suffix(suffix).touch()
        (partition / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
    (directory / names.CLEAN_SHUTDOWN_MARKER).touch()


def lines(output: bytes, kind: str) -> Iterator[dict[str, Any]]:
    return (each for each in map(json.loads, output.splitlines()) if each.get("type") == kind)


def damaged_partitions(stderr: bytes) -> set[int]:
    return {int(found) for found in re.findall(rb"/t-(\d+)/[0-9]+\.log: ", stderr)}


def exported(directory: Path, into: Path) -> tuple[dict[int, list[int]], set[int]]:
    args = ["export", str(directory), "--out", str(into), "--format", "jsonl", "--layout", "flat"]
    outcome = run_kdump([*args, "--columns", "partition,offset", "--engine", "local"], directory)
    found = defaultdict[int, list[int]](list)
    for file in sorted(into.glob("*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["partition"]].append(row["offset"])
    return found, damaged_partitions(outcome.stderr)


def searched(directory: Path) -> tuple[dict[int, list[int]], set[int]]:
    args = ["grep", "-e", "", str(directory), "--output", "jsonl", "--engine", "local"]
    outcome = run_kdump(args, directory)
    found = defaultdict[int, list[int]](list)
    for row in lines(outcome.stdout, "record"):
        found[row["partition"]].append(row["offset"])
    return found, damaged_partitions(outcome.stderr)


def verified(directory: Path) -> tuple[set[int], dict[int, int]]:
    """The partitions with a damaged log, and the ends of all."""
    args = ["verify", "--deep", "--output", "jsonl", "--engine", "local", str(directory)]
    said = run_kdump(args, directory).stdout
    damaged = {
        int(Path(row["path"]).parent.name.removeprefix("t-"))
        for row in lines(said, "finding")
        if row["severity"] in ("error", "severe")
        and row["path"].endswith(".log")
        and row["code"] != "batch-max-timestamp"
    }
    return damaged, {row["partition"]: row["log_end_offset"] for row in lines(said, "partition")}


def listed_ends(directory: Path) -> dict[int, int]:
    args = ["ls", "--output", "jsonl", str(directory)]
    rows = lines(run_kdump(args, directory).stdout, "partition")
    return {row["partition"]: row["log_end_offset"] for row in rows}


def looked_up(partition: Partition, offset: int) -> int | None:
    found = RecordSearch(partition).at_or_after(offset)
    return None if found is None else found.record.offset


def _complain(wrong: list[str], case: str, what: str) -> None:
    wrong.append(f"{case}: {what}")


@pytest.mark.parametrize("seed", seeds(0, count=50, in_main=1))
def test_all_readers_agree(
    seed: int, consumers: tuple[JavaServer, JavaServer], loader: JavaServer, quick_path: Path
) -> None:
    rng = random.Random(seed)
    logs = [malformed_log(rng) for _ in range(PARTITIONS)]
    directory = quick_path / "logs"
    write(directory, logs)
    wrong: list[str] = []
    export, export_damage = exported(directory, quick_path / "out")
    grep, grep_damage = searched(directory)
    damaged, verified_ends = verified(directory)
    ends = listed_ends(directory)
    # A broker that loads a log may truncate it.
    shutil.copytree(directory, quick_path / "loaded")
    loaded = loader.ask_words([str(quick_path / "loaded"), "log-end"])
    partitions = {
        int(p.path.name.removeprefix("t-")): p
        for p in read_log_directory(local(directory)).partitions
    }
    for number, log in enumerate(logs):
        found = export[number]

        complain = functools.partial(_complain, wrong, f"{number}: {log.changes}")
        if grep[number] != found:
            complain(f"grep {grep[number]}, export {found}")
        if (number in grep_damage) != (number in export_damage):
            complain(
                f"grep reports damage: {number in grep_damage}, export: {number in export_damage}"
            )
        if (number in damaged) != (number in export_damage):
            complain(f"verify finds damage: {number in damaged}, export: {number in export_damage}")
        if verified_ends[number] != (end := log_end(partitions[number], Trust.CHECKSUMS).offset):
            complain(f"verify END {verified_ends[number]}, groups and export {end}")
        if found != sorted(set(found)):
            complain(f"not in order: {found}")
        for offset in range(max(found, default=0) + 2 if max(found, default=0) < 1000 else 100):
            expected = next((each for each in found if each >= offset), None)
            if (answer := looked_up(partitions[number], offset)) != expected:
                complain(f"lookup {offset}: {answer}, not {expected}")
                break
        sizes = [len(each) for each in log.batches]
        starts = [sum(sizes[:at]) for at in range(len(sizes) + 1)]
        ranges = [f"{start}-{end}" for start, end in itertools.pairwise(starts)]
        path = str(directory / f"t-{number}" / LOG)
        whole = f"0-{starts[-1]}"
        consumed, by_newest = (each.ask_words([path, whole, *ranges]) for each in consumers)
        if consumed != by_newest:
            complain(f"a consumer of 4.3.1 gets {consumed}, of the newest Kafka {by_newest}")
        possible = set[str]()
        for own, each in zip(log.offsets, ranges, strict=True):
            if own is None:
                possible |= set(consumed[each].split())
                if number in export_damage:
                    # kdump reads the records before the damage in a batch, a consumer none.
                    start = int(each.split("-")[0])
                    header = decode_header(log.data[start : start + HEADER_BYTES])
                    if header.base_offset < 1000:
                        possible |= set(map(str, range(header.base_offset, header.base_offset + 5)))
            elif not set(own) <= set(found):
                complain(f"valid records {own} are missing in {found}")
            else:
                possible |= set(map(str, own))
        if not set(map(str, found)) <= possible:
            complain(f"no consumer gets {sorted(set(map(str, found)) - possible)}")
        if number not in export_damage and consumed[whole] != " ".join(map(str, found)):
            complain(f"silent, {found}, a consumer gets {consumed[whole]}")
        in_broker = loaded.get(f"t-{number}/log-end")
        # After an end that wraps, a broker deletes the log, because it ends before it begins.
        if in_broker is not None and int(in_broker) != max(ends[number], 0):
            complain(f"ls END {ends[number]}, loaded {in_broker}")
    assert len(wrong) <= FEW, "\n".join([f"{len(wrong)} differ", *wrong])
