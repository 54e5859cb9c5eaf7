"""What changes of partitions are called in the history of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from kdump.state.metadata.metadata_entities import PartitionRegistration
from kdump.state.metadata.metadata_history import MetadataHistory
from kdump.state.metadata.metadata_image import EntityKind, MetadataChange


def registration(**changed: Any) -> PartitionRegistration:
    fields: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "directories": ("a", "b", "c"),
        "isr": (1, 2),
        "elr": (),
        "last_known_elr": (),
        "removing_replicas": (),
        "adding_replicas": (),
        "leader": 1,
        "leader_recovery_state": "RECOVERED",
        "leader_epoch": 4,
        "partition_epoch": 9,
    }
    return PartitionRegistration(**fields | changed)


def events(old: PartitionRegistration, new: PartitionRegistration) -> list[tuple[str, str | None]]:
    change = MetadataChange(EntityKind.PARTITION, ("id", 0), old, new, "t")
    return [(each.event, each.election) for each in MetadataHistory().events_of([change])]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (registration(isr=(1,)), [("isr_changed", None)]),
        (registration(leader=2, leader_epoch=5), [("elected", "clean")]),
        (registration(leader=2, leader_epoch=5, isr=(2,)), [("elected", "clean")]),
        (registration(leader=-1, leader_epoch=5, isr=(), elr=(1,)), [("leaderless", None)]),
        # Before metadata.version 3.2 nothing else says that it was unclean.
        (registration(leader=3, leader_epoch=5, isr=(3,)), [("elected", "unclean")]),
        (
            registration(leader=3, leader_epoch=5, isr=(3,), leader_recovery_state="RECOVERING"),
            [("elected", "unclean")],
        ),
        (registration(directories=("a", "b", "d")), [("directories_changed", None)]),
        (
            registration(
                replicas=(4, 1, 2, 3), adding_replicas=(4,), directories=("d", "a", "b", "c")
            ),
            [("reassigning", None)],
        ),
        (registration(partition_epoch=10), []),
    ],
)
def test_a_change_of_a_partition_has_its_word(
    new: PartitionRegistration, expected: list[tuple[str, str | None]]
) -> None:
    assert events(registration(), new) == expected


def test_a_leader_from_the_eligible_replicas_is_elected_cleanly() -> None:
    old = registration(leader=-1, isr=(), elr=(2,))
    assert events(old, registration(leader=2, leader_epoch=5, isr=(2,))) == [("elected", "clean")]


def test_a_reassignment_ends_or_is_cancelled() -> None:
    old = registration(
        replicas=(4, 1, 2, 3),
        adding_replicas=(4,),
        removing_replicas=(1,),
        directories=("d", "a", "b", "c"),
    )
    done = registration(
        replicas=(4, 2, 3), isr=(4,), leader=4, leader_epoch=5, directories=("d", "b", "c")
    )
    assert events(old, done) == [("reassigned", None), ("elected", "clean")]
    assert events(old, registration())[0] == ("reassignment_cancelled", None)
