"""What to know of the rest of a cluster before a node starts with logs that are older."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from kdump.cli.output.events import Event, Printer
from kdump.rows.row_type import COUNT, INTEGER, Field, RowType
from kdump.words import counted, first_of

if TYPE_CHECKING:
    from kdump.jobs.known_cluster import OtherNodes

ABSENT_BROKER: Final = RowType(
    "absent_broker",
    "A broker that has replicas, and none of its log directories is among these.",
    (
        Field("node_id", INTEGER),
        Field(
            "partitions",
            COUNT,
            "How many of the partitions have a replica there; of those that are cut, where any is.",
        ),
    ),
)
ABSENT_CONTROLLER: Final = RowType(
    "absent_controller",
    "Another controller that votes, and none of its log directories is among these.",
    (Field("node_id", INTEGER),),
)

_MOST_NAMED: Final = 5
_MANUAL: Final = "see IN A CLUSTER THAT RAN ON, kdump-backup(1)"


def report_other_nodes(printer: Printer, found: OtherNodes) -> None:
    """Name the nodes that may have run on, and say where it is written what to do about them."""
    for node_id, partitions in found.brokers.items():
        printer.emit(Event("absent_broker", {"node_id": node_id, "partitions": partitions}))
    for node_id in found.voters:
        printer.emit(Event("absent_controller", {"node_id": node_id}))
    printer.emit_text(_lines(found))


def _lines(found: OtherNodes) -> Iterator[str]:
    others = []
    if found.brokers:
        has = "has" if len(found.brokers) == 1 else "have"
        partitions = counted(found.partitions, "partition")
        others.append(f"{_named('broker', found.brokers)} {has} replicas of {partitions}")
    if found.voters:
        vote = "votes" if len(found.voters) == 1 else "vote"
        others.append(f"{_named('controller', found.voters)} {vote}, too")
    if others:
        yield (
            f"{', and '.join(others)}: if they have run since, do not start a node on this yet:"
            f" they could lose what is later; {_MANUAL}"
        )
    elif not found.has_metadata:
        yield (
            "no copy of the cluster's metadata says whether other brokers have replicas: if any"
            f" have run since, do not start a node on this yet: they could lose what is later;"
            f" {_MANUAL}"
        )


def _named(noun: str, node_ids: Collection[int]) -> str:
    return f"{noun}{'' if len(node_ids) == 1 else 's'} {first_of(node_ids, _MOST_NAMED)}"
