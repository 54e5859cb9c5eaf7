"""What is collected of a cluster's metadata as of a moment, from a real controller's copy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kdump.errors import UsageProblem
from kdump.jobs.collect.metadata_copy import collect_metadata
from kdump.jobs.metadata.metadata_copies import read_copies
from kdump.jobs.metadata.metadata_questions import HistoryReading
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.state.metadata.collected_image import image_of_records
from kdump.state.metadata.metadata_image import METADATA_VERSION, EntityKind, MetadataImage
from kdump.state.metadata.metadata_replay import END, CopyReplay, MetadataPoint
from kdump.storage.local_disk import local

OF_THE_MOMENT: Final = (
    EntityKind.TOPIC,
    EntityKind.CONFIG,
    EntityKind.QUOTA,
    EntityKind.ACL,
    EntityKind.SCRAM,
)
OF_NOW: Final = (EntityKind.BROKER, EntityKind.CONTROLLER)


@pytest.fixture
def controller(fixtures: Path) -> LogDirectory:
    return read_log_directory(local(fixtures / "states" / "clean" / "c1001"))


def image_at(directory: LogDirectory, point: MetadataPoint) -> MetadataImage:
    (copy,) = read_copies([directory])
    return CopyReplay(copy.partition, lambda _: None).image_at(point)


def moments(directory: LogDirectory) -> list[int]:
    """When something changed, without repetition."""
    (copy,) = read_copies([directory])
    events = HistoryReading.of(copy, END, lambda _: None).events()
    records = [each.change.record for each in events]
    return sorted({each.timestamp_ms for each in records if each is not None})


def test_what_people_decide_is_of_the_moment_and_the_rest_of_the_end(
    controller: LogDirectory,
) -> None:
    now = image_at(controller, END)
    changed = set()
    for time_ms in moments(controller)[::8]:
        then = image_at(controller, MetadataPoint(time_ms=time_ms))
        if not then.of(EntityKind.BROKER):
            continue
        collected = collect_metadata(controller, time_ms)
        assert collected is not None
        assert collected.rewound is not None
        assert (collected.epoch, collected.end_offset) == now.end
        found = image_of_records(collected.records, now.end)
        for kind in OF_THE_MOMENT:
            assert found.of(kind) == then.of(kind)
            changed |= {kind} if then.of(kind) != now.of(kind) else set()
        for kind in OF_NOW:
            assert found.of(kind) == now.of(kind)
        level = found.of(EntityKind.FEATURE)[METADATA_VERSION]
        assert level == now.of(EntityKind.FEATURE)[METADATA_VERSION]
        topics = then.of(EntityKind.TOPIC)
        assert {topic_id for topic_id, _ in found.of(EntityKind.PARTITION)} == {*topics}
        assert {*collected.rewound.later_topics} == now.of(EntityKind.TOPIC).keys() - topics
        for key, registration in now.of(EntityKind.PARTITION).items():
            if key[0] in topics:
                assert found.of(EntityKind.PARTITION)[key] == registration
    assert changed == {*OF_THE_MOMENT}


def test_a_moment_before_the_first_broker_is_refused(controller: LogDirectory) -> None:
    with pytest.raises(UsageProblem, match="no broker had registered at that time"):
        collect_metadata(controller, moments(controller)[0] - 1)
