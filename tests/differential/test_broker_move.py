"""A real broker starts on moved partitions without recovery, and tells the controller.

The runbook for a dying disk is followed literally on the two directories of a broker: the second
disk is drained, then a new, empty one takes its place.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from builders.broker import PROPERTIES, BrokerHost, Consumed, RequestFailed
from builders.freeing import of_type, rows_of, run
from builders.runbook import commands_of, words_of
from kdump.formats import names
from kdump.formats.meta_properties import decode_meta_properties
from kdump.formats.names import CLUSTER_METADATA_PARTITION, PartitionState
from kdump.formats.uuids import format_uuid
from kdump.log.partition import read_partition
from kdump.state.metadata.cluster import read_cluster_image
from kdump.storage.local_disk import local

pytestmark = [pytest.mark.differential, pytest.mark.soak]

NODE_ID: Final = 1
MOVED: Final = ("compact.basic", "codec.mixed", "retention-bytes", "1-2-3", "ts.create_time")
"""Topics with one partition, in the second directory."""
TOLD_WITHIN_S: Final = 60
UNTIL_IT_IS_EMPTY: Final = 5
"""How many commands of the runbook come before the broker starts again."""


@dataclass(frozen=True, slots=True)
class Story:
    """What was seen, in order.

    Attributes:
        statuses: exit statuses of the runbook's commands.
        before: the records before the move.
        after: the records after it.
        served: partitions by name of their directory, after it.
        logged: what the broker logged after the move, and with a new disk.
        told: for each moved topic, the name of the directory that the controller knows.
        cleaned: how dirty the cleaner finds the logs in the end.
        replaced: the records with a new disk.
        served_then: partitions by name of their directory, with a new disk.
    """

    statuses: list[int]
    before: dict[str, Consumed]
    after: dict[str, Consumed]
    served: dict[str, list[str]]
    logged: list[str]
    told: dict[str, str]
    cleaned: int
    replaced: dict[str, Consumed]
    served_then: dict[str, list[str]]


def id_of(log_dir: Path) -> str:
    found = decode_meta_properties((log_dir / names.META_PROPERTIES).read_bytes()).directory_id
    assert found is not None
    return format_uuid(found)


def known_directories(log_dir: Path, topics: tuple[str, ...]) -> dict[str, str | None]:
    """Return the directory of each topic's first partition, as the controller has it."""
    key = CLUSTER_METADATA_PARTITION
    copy = read_partition(local(log_dir / str(key)), key, PartitionState.LIVE)
    image = read_cluster_image(copy)
    if image is None:  # the broker is just writing to it
        return dict.fromkeys(topics)
    return {name: image.topics[name].partitions[0].directory_on(NODE_ID) for name in topics}


def told(d1: Path, expected: str) -> dict[str, str]:
    """Wait until the controller knows the new directory of the moved topics."""
    deadline = time.monotonic() + TOLD_WITHIN_S
    while True:
        found = known_directories(d1, MOVED)
        if set(found.values()) == {expected} or time.monotonic() > deadline:
            return {name: d1.name if each == expected else "?" for name, each in found.items()}


def consumed(host: BrokerHost) -> dict[str, Consumed]:
    return {topic: host.read(topic) for topic in (*MOVED, "codec-none")}


def served(host: BrokerHost) -> dict[str, list[str]]:
    return {Path(path).name: found for path, found in host.served_directories().items()}


@pytest.fixture(scope="module")
def story(
    broker_host: BrokerHost, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Story:
    """Run the scenario."""
    folder = tmp_path_factory.mktemp("broker")
    shutil.copytree(fixtures / "out" / "clean", folder / "clean")
    d1, d2 = folder / "clean" / "d1", folder / "clean" / "d2"
    with broker_host.broker([d1, d2]):
        before = consumed(broker_host)

    new = folder / "clean" / "d3"
    file = folder / "server.properties"
    given = PROPERTIES | {"log.dirs": f"{d1},{d2}", "metadata.log.dir": str(d1)}
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    names_in_runbook = {
        "OTHER...": str(d1),
        "OLD": str(d2),
        "NEW": str(new),
        "FILE": str(file),
    }
    commands = [words_of(each, names_in_runbook)[1:] for each in commands_of("dying-disk")]
    statuses = [run(*each).exit_status for each in commands[:UNTIL_IT_IS_EMPTY]]
    with broker_host.broker([d1, d2]):
        after, found = consumed(broker_host), served(broker_host)
        known = told(d1, id_of(d1))
        logged = broker_host.logged()
        cleaned = broker_host.wait_for_cleaner()

    shutil.rmtree(d2)
    new.mkdir()
    *filling, checking = commands[UNTIL_IT_IS_EMPTY:]
    statuses += [run(*each).exit_status for each in filling]
    with broker_host.broker([d1, new]):
        replaced, then = consumed(broker_host), served(broker_host)
        logged += broker_host.logged()
    statuses.append(run(*checking).exit_status)
    return Story(statuses, before, after, found, logged, known, cleaned, replaced, then)


def test_every_command_of_the_runbook_does_its_part(story: Story) -> None:
    assert story.statuses == [0, 0, 0, 0, 0, 1, 0, 0]


def test_all_records_are_there(story: Story) -> None:
    assert story.after == story.before
    assert story.replaced == story.before


def test_the_broker_serves_them_from_the_other_disk(story: Story) -> None:
    assert {f"{topic}-0" for topic in MOVED} <= set(story.served["d1"])
    assert story.served["d2"] == []


def test_the_broker_recovers_nothing(story: Story) -> None:
    text = "\n".join(story.logged)
    assert len(re.findall(r"Skipping recovery of \d+ logs from", text)) >= 3
    assert not re.findall(r"Recovering \d+ logs from", text)


def test_the_controller_learns_the_new_directory(story: Story) -> None:
    assert story.told == dict.fromkeys(MOVED, "d1")


def test_the_cleaner_goes_on(story: Story) -> None:
    assert story.cleaned == 0


def test_a_new_disk_takes_its_part(story: Story) -> None:
    assert story.served_then["d3"]


@pytest.fixture
def log_dirs(fixtures: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a copy of the two directories of a broker."""
    shutil.copytree(fixtures / "out" / "clean", tmp_path / "clean")
    return tmp_path / "clean" / "d1", tmp_path / "clean" / "d2"


def test_without_the_drained_disk_the_second_start_brings_a_leader(
    broker_host: BrokerHost, log_dirs: tuple[Path, Path]
) -> None:
    d1, d2 = log_dirs
    assert run("move", "--drain", d2, "--to", d1).exit_status == 0
    shutil.rmtree(d2)

    with broker_host.broker([d1]):
        assert told(d1, id_of(d1)) == dict.fromkeys(MOVED, "d1")
    with broker_host.broker([d1]):
        assert broker_host.read("compact.basic").end_offset == 909


def lose_both(d1: Path, d2: Path) -> tuple[str, ...]:
    for each in (d1, d2):
        (each / names.META_PROPERTIES).unlink()
    return ("--cluster-id", "kdumpGoldenAAAAAAAAAAA", "--node-id", "1")


def be_of_another_broker(d1: Path, d2: Path) -> tuple[str, ...]:
    path = d2 / names.META_PROPERTIES
    path.write_text(f"version=1\ncluster.id=another\nnode.id=2\ndirectory.id={id_of(d1)}\n")
    return ("--cluster-id", "kdumpGoldenAAAAAAAAAAA", "--node-id", "1")


@pytest.mark.parametrize("change", [lose_both, be_of_another_broker])
def test_a_broker_starts_with_a_repaired_identity(
    change: Callable[[Path, Path], tuple[str, ...]],
    broker_host: BrokerHost,
    log_dirs: tuple[Path, Path],
) -> None:
    given = change(*log_dirs)
    with pytest.raises(RequestFailed), broker_host.broker(log_dirs):
        pass
    (summary,) = of_type(rows_of("identity", *log_dirs), "summary")
    assert summary["is_startable"] is False

    assert run("identity", "--repair", *given, *log_dirs).exit_status == 1

    with broker_host.broker(log_dirs):
        assert broker_host.read("compact.basic").end_offset == 909
        assert not any(path.name.endswith("-stray") for path in log_dirs[1].iterdir())
