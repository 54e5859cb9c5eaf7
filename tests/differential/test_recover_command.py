"""``kdump recover`` leaves whole log directories as Kafka's own loader does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.loading import EXPIRING, Arena, Clock, LoaderServer
from builders.trees import contents_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats.names import TopicPartition
from kdump.target.refusal import Refusal

pytestmark = pytest.mark.differential


def recover(
    path: Path, settings: IndexSettings, *, now_ms: int, producer_id_expiration_ms: int | None
) -> dict[TopicPartition, Refusal | None]:
    """Run ``kdump recover``, after a dry run that must predict all changes."""
    args = [
        *("recover", str(path), "--now", str(now_ms), "--output", "json"),
        "--kafka-version=4.3.1",
        *("--config", f"index.interval.bytes={settings.interval_bytes}"),
        *("--config", f"segment.index.bytes={settings.max_bytes}"),
        *("--config", f"producer.id.expiration.ms={producer_id_expiration_ms}"),
    ]
    before = contents_of(path)
    predicted = objects(run_kdump([*args, "--dry-run"], path).stdout)
    assert contents_of(path) == before
    done = objects(run_kdump([*args, "--no-undo"], path).stdout)
    partitions, predicted = (
        [row for row in said if row["type"] == "partition"] for said in (done, predicted)
    )
    assert partitions == predicted
    return {
        TopicPartition(row["topic"], row["partition"]): _refusal(row["refusals"])
        for row in partitions
    }


def _refusal(rows: list[dict[str, str]]) -> Refusal | None:
    return next((Refusal(row["why"], row["file"], row["exception"]) for row in rows), None)


@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
@pytest.mark.parametrize(
    ("interval_bytes", "clock"), [(0, Clock()), (4096, EXPIRING)], ids=["dense", "some-expire"]
)
def test_a_damaged_directory_is_left_as_kafka_leaves_it(
    loader_server: LoaderServer, quick_path: Path, clean: bool, interval_bytes: int, clock: Clock
) -> None:
    arena = Arena(loader_server, quick_path, IndexSettings(interval_bytes), clock, recover)
    arena.generate(random.Random(interval_bytes + clean), 25, clean=clean)

    found = arena.compare()

    assert not found, "\n".join(map(str, found[:3]))
