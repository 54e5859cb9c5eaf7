"""Directories of single brokers: stopped cleanly, killed, of old message formats and versions."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from builders.damage import batch_positions
from builders.in_process import run_kdump
from builders.object_server import object_server
from builders.packed import pack
from builders.serving import Read, RunningServer, opened
from builders.tiered_fixture import TieredFixture
from builders.valid_batches import offsets_of
from kdump.formats.names import TopicPartition
from kdump.log.directory import directory_kind
from kdump.log.remote_files import RemotePlace
from kdump.storage.local_disk import local
from kdump.storage.places import parse_location, parse_locations
from kdump.tiered.tiered_storage import tiered_locations

pytestmark = pytest.mark.slow

LEVELS = ("uncommitted", "committed")


def disks_of(folder: Path) -> list[Path]:
    """The log directories of a broker, which may be the folder itself."""
    found = [each for each in (folder, *sorted(folder.iterdir())) if each.is_dir()]
    disks = [each for each in found if directory_kind(local(each)).is_log_directory]
    assert disks
    return disks


def read_of(server: RunningServer, level: str) -> dict[str, list[Read]]:
    keys = [(each.key.topic, each.key.partition) for each in server.cluster.logs]
    found = server.read(keys, f"read_{level}")
    return {f"{topic}-{number}": rows for (topic, number), rows in found.items()}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("clean", "expected"),
        ("recovered", "expected.recovered"),
        # What a broker serves after it recovered the directory.
        ("crashed", "expected.recovered"),
        ("legacy", "expected.legacy"),
        ("clean-mv39", "expected.clean-mv39"),
    ],
)
def test_consumers_get_the_records_that_the_official_one_got(
    state: str, expected: str, level: str, fixtures: Path
) -> None:
    with opened(*disks_of(fixtures / "out" / state)) as server:
        found = read_of(server, level)
        assert server.lines == []
    folder = fixtures / "out" / expected
    compared = 0
    for name, rows in found.items():
        path = folder / f"{name}.{level}.jsonl"
        if path.exists():
            wanted = [json.loads(line) for line in path.read_text().splitlines()]
            assert [(each.offset, each.timestamp, each.key, each.value) for each in rows] == [
                (row["offset"], row["timestamp"], _bytes(row["key"]), _bytes(row["value"]))
                for row in wanted
            ], name
            compared += 1
    # Message sets of magic 0 and 1 have no transactions.
    assert compared or (state, level) == ("legacy", "committed")


def test_an_archive_is_served_as_its_directory(fixtures: Path, tmp_path: Path) -> None:
    archive = pack(fixtures / "out" / "clean", tmp_path / "clean.tar")
    places = [parse_location(f"{archive}/{name}") for name in ("d1", "d2")]
    with opened(*places) as server:
        packed = read_of(server, "committed")
    with opened(*disks_of(fixtures / "out" / "clean")) as server:
        assert packed == read_of(server, "committed")


def test_an_object_store_is_served_as_its_directory(fixtures: Path) -> None:
    with object_server() as store:
        folder = fixtures / "out" / "clean"
        places = [parse_location(store.upload(folder / name, name)) for name in ("d1", "d2")]
        with opened(*places) as server:
            stored = read_of(server, "committed")
    with opened(*disks_of(folder)) as server:
        assert stored == read_of(server, "committed")


def test_a_snapshot_is_served_as_its_directory(fixtures: Path, tmp_path: Path) -> None:
    disks = disks_of(fixtures / "out" / "clean")
    made = run_kdump(["backup", "create", "repo", *map(str, disks)], tmp_path)
    assert made.exit_status == 0, made.stderr
    with opened(*parse_locations([f"{tmp_path}/repo!latest"])) as server:
        stored = read_of(server, "committed")
    with opened(*disks) as server:
        assert stored == read_of(server, "committed")


@pytest.fixture(scope="module")
def tiered(fixtures: Path) -> Iterator[RunningServer]:
    """Return a server of partitions with their segments in tiered storage."""
    disks = TieredFixture(fixtures / "tiered")
    place = RemotePlace(local(disks.remote))
    with opened(*tiered_locations([local(disks.leader), local(disks.follower)], place)) as server:
        yield server


@pytest.mark.parametrize("level", LEVELS)
def test_remote_segments_are_served(level: str, tiered: RunningServer, fixtures: Path) -> None:
    found = read_of(tiered, level)
    wanted = TieredFixture(fixtures / "tiered").consumed(f"read_{level}")
    for name, rows in wanted.items():
        assert [
            (each.offset, each.timestamp, _text(each.key), _text(each.value))
            for each in found[name]
        ] == rows, name


def test_offsets_of_tiered_storage_are_listed(tiered: RunningServer, fixtures: Path) -> None:
    times = {"earliest": -2, "earliest-local": -4, "latest-tiered": -5, "latest": -1}
    for name, said in TieredFixture(fixtures / "tiered").offsets.items():
        topic, _, number = name.rpartition("-")
        for word, expected in said.items():
            partition = {"partition_index": int(number), "timestamp": times[word]}
            topics = [{"name": topic, "partitions": [partition]}]
            answer = tiered.ask(
                2, 10, replica_id=-1, isolation_level=0, topics=topics, timeout=timedelta(0)
            )
            assert answer.topics[0].partitions[0].offset == expected, (name, word)


class DamagedRemote(NamedTuple):
    """Disks with a damaged batch in a segment that only the tiered storage has.

    Attributes:
        partition: its name.
        lost: the offsets of the batch.
    """

    disks: TieredFixture
    partition: str
    lost: range


@pytest.fixture
def damaged_remote(fixtures: Path, tmp_path: Path) -> DamagedRemote:
    disks = TieredFixture(shutil.copytree(fixtures / "tiered", tmp_path / "tiered"))
    name, said = next(
        each for each in sorted(disks.offsets.items()) if each[1]["earliest-local"] > 0
    )
    log = next(
        path
        for path in sorted(disks.remote.glob(f"*/{name}-*/*.log"))
        if said["earliest"] <= int(path.name[:20]) < said["earliest-local"]
    )
    content = bytearray(log.read_bytes())
    at = batch_positions(content)[1]
    lost = offsets_of(bytes(content[at:]))
    content[at + 70] ^= 1
    log.write_bytes(content)
    return DamagedRemote(disks, name, range(lost[0], lost[1] + 1))


@pytest.mark.parametrize("skips_damage", [False, True])
def test_damage_in_a_remote_segment_is_told(
    skips_damage: bool, damaged_remote: DamagedRemote
) -> None:
    disks, name, lost = damaged_remote
    topic, _, number = name.rpartition("-")
    wanted = [row[0] for row in disks.consumed("read_uncommitted")[name] if row[0] not in lost]
    place = RemotePlace(local(disks.remote))
    locations = tiered_locations([local(disks.leader), local(disks.follower)], place)
    with opened(*locations, skips_damage=skips_damage) as server:
        if skips_damage:
            found = server.read([(topic, int(number))])[topic, int(number)]
            assert [each.offset for each in found] == wanted
        else:
            with pytest.raises(AssertionError, match="Invalid message"):
                server.read([(topic, int(number))])
            assert f"{name}: offsets {lost[0]} to {lost[-1]} are not served" in server.lines[0]
        key = TopicPartition(topic, int(number))
        assert server.notices.lost_ranges(key) == [(lost[0], lost[-1] + 1)]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


@pytest.mark.parametrize(
    ("state", "served_by"),
    [("clean", "clean"), ("recovered", "recovered"), ("crashed", "recovered")],
)
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2", "1.1.1", "2.0.1"])
def test_the_records_of_old_brokers_are_those_that_their_consumers_got(
    version: str, state: str, served_by: str, fixtures: Path
) -> None:
    folder = fixtures / "old" / version
    with opened(*disks_of(folder / state)) as server:
        found = read_of(server, "uncommitted")
        assert server.lines == []
    wanted = defaultdict[str, list[tuple[Any, ...]]](list)
    expected = folder / f"expected-{served_by}.read_uncommitted.jsonl"
    for line in expected.read_text().splitlines():
        row = json.loads(line)
        if "end" not in row:
            wanted[f"{row['t']}-{row['p']}"].append((row["o"], _bytes(row["k"]), _bytes(row["v"])))
    compared = wanted.keys() & found.keys()
    assert compared
    for name in compared:
        rows = [(each.offset, each.key, each.value) for each in found[name]]
        if state != served_by and name.startswith("__"):
            # A coordinator that starts goes on to write there.
            assert rows
            del wanted[name][len(rows) :]
        assert rows == wanted[name], name


def _bytes(text: Any) -> bytes | None:
    if isinstance(text, dict):
        return str(text["s"]).encode()
    return None if text is None else b64decode(text)
