"""Directories that a real broker made ``-stray`` are partitions again, with every record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import BrokerHost, Consumed
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.memory import in_memory
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

METADATA: Final = f"{names.CLUSTER_METADATA_TOPIC}-0"
FORMATTED: Final = f"{0:020d}-{0:010d}.checkpoint"
"""What Kafka's own tool writes into the metadata of a new controller."""
LEAST: Final = 60
NEW: Final = tuple(f"new-{number}" for number in range(8))
DELETED: Final = "delete-records"
"""A topic whose first records were deleted: only the lost checkpoint knew of that."""
READ: Final = (*NEW, "codec-zstd", "compact-txn", "grown", "txn.basic", DELETED)


@dataclass(frozen=True, slots=True)
class Strays:
    """The directories of a broker that was started with empty metadata, and stopped.

    Attributes:
        log_dirs: two.
        old: a directory with the metadata that has its partitions.
        consumed: what consumers read before.
    """

    log_dirs: list[Path]
    old: Path
    consumed: Mapping[str, Consumed]


@pytest.fixture(scope="module")
def left_by_a_broker(
    broker_host: BrokerHost, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Strays]:
    """Let a broker write, take its metadata away, and start it again."""
    with in_memory(tmp_path_factory.mktemp("stray")) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        d1, d2 = (folder / "clean" / name for name in ("d1", "d2"))
        with broker_host.broker([d1, d2]):
            broker_host.open_producer("of-strays")
            for topic in NEW:
                broker_host.create_topic(topic)
                records = [(b"key", b"value %d" % number) for number in range(20)]
                broker_host.send("of-strays", topic, 1, records)
            consumed = {topic: broker_host.read(topic) for topic in READ}
        old = folder / "old"
        old.mkdir()
        shutil.copy(d1 / names.META_PROPERTIES, old)
        (d1 / METADATA).rename(old / METADATA)
        (d1 / METADATA).mkdir()
        shutil.copy(old / METADATA / FORMATTED, d1 / METADATA)
        with broker_host.broker([d1, d2]):
            pass
        yield Strays([d1, d2], old, consumed)


@pytest.fixture
def strays(left_by_a_broker: Strays, quick_path: Path) -> Strays:
    """Return a copy of these directories."""
    log_dirs = [shutil.copytree(each, quick_path / each.name) for each in left_by_a_broker.log_dirs]
    return Strays(log_dirs, left_by_a_broker.old, left_by_a_broker.consumed)


def test_a_restored_topic_that_was_deleted_is_kept_by_the_next_start(
    broker_host: BrokerHost, fixtures: Path, tmp_path: Path
) -> None:
    clean = shutil.copytree(fixtures / "out" / "clean", tmp_path / "clean")
    d1, d2 = clean / "d1", clean / "d2"
    (deleted,) = d1.glob("deleted-topic-0.*-delete")
    logs = {each.name: each.read_bytes() for each in deleted.glob("*.log")}

    assert kdump("undelete", "--topic", "deleted-topic", d1, d2).exit_status == 5
    with broker_host.broker([d1, d2]):
        pass

    (kept,) = d1.glob("deleted-topic-0.*")
    assert kept.name.endswith("-stray")
    assert {each.name: each.read_bytes() for each in kept.glob("*.log")} == logs


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([*map(str, args)], Path.cwd())


def stray_in(log_dirs: list[Path]) -> list[str]:
    return sorted(path.name for each in log_dirs for path in each.glob("*-stray"))


def undelete(*args: str | Path) -> tuple[int, list[dict[str, Any]]]:
    outcome = kdump("undelete", "--partition", "*-stray", "--output", "jsonl", *args)
    assert not outcome.stderr
    rows = [row for row in objects(outcome.stdout) if row["type"] == "partition"]
    return outcome.exit_status, rows


def rivals(log_dirs: list[Path]) -> list[str]:
    """Return the directories that are not the only one of their partition."""
    _, rows = undelete("--dry-run", *log_dirs)
    return [row["directory"] for row in rows if row["obstacle"] == "several-candidates"]


def test_an_undo_gives_back_what_the_broker_left_byte_for_byte(strays: Strays) -> None:
    log_dirs = strays.log_dirs
    assert len(stray_in(log_dirs)) >= LEAST
    before = [original_of(each) for each in log_dirs]

    status, rows = undelete(*log_dirs)

    assert status == 5
    assert {row["next_start"] for row in rows if row["restored_as"]} == {"stray"}
    assert stray_in(log_dirs) == sorted(rivals(log_dirs))
    for each in log_dirs:
        assert kdump("undo", each).exit_status == 0
    assert [original_of(each) for each in log_dirs] == before


def test_with_metadata_that_knows_them_every_record_is_back(
    broker_host: BrokerHost, strays: Strays
) -> None:
    log_dirs = strays.log_dirs
    # The copy that was moving to the other disk is not needed; the other one is complete.
    for name in rivals(log_dirs):
        if (log_dirs[0] / name).is_dir():
            shutil.rmtree(log_dirs[0] / name)

    status, rows = undelete("--metadata", strays.old, *log_dirs)

    assert status == 1
    assert len(rows) >= LEAST
    assert {row["next_start"] for row in rows} == {"kept"}
    shutil.rmtree(log_dirs[0] / METADATA)
    shutil.copytree(strays.old / METADATA, log_dirs[0] / METADATA)
    with broker_host.broker(log_dirs):
        consumed = {topic: broker_host.read(topic) for topic in READ}
    assert stray_in(log_dirs) == []
    for topic, before in strays.consumed.items():
        if topic != DELETED:
            assert consumed[topic] == before, topic
    assert strays.consumed[DELETED].records.items() < consumed[DELETED].records.items()
