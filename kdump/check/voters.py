"""Check that the voters of the controllers' quorum fit a node, by its properties file and its log.

Follows ``KafkaConfig.validateValues`` and ``VoterSet.isVoter``: a voter with another directory id
is another voter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Finding, Place, Severity
from kdump.check.start import StartProblem
from kdump.formats.server_properties import BROKER_ROLE, CONTROLLER_ROLE, ServerProperties
from kdump.formats.uuids import ZERO_UUID, format_uuid
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.state.metadata.metadata_image import EntityKind
from kdump.state.metadata.metadata_nodes import Voter
from kdump.state.metadata.metadata_replay import END, CopyReplay

_NO_DIRECTORY: Final = format_uuid(ZERO_UUID)
_BROKER_ONLY: Final = frozenset({BROKER_ROLE})


class LoggedVoters(Struct, frozen=True):
    """The voters in a copy of the cluster's metadata.

    Attributes:
        is_dynamic: whether the voters come from the log (``kraft.version`` 1).
        voters: by node id.
    """

    is_dynamic: bool
    voters: Mapping[int, Voter]

    def directory_of(self, node_id: int | None) -> str | None:
        """The directory id of a voter as Kafka writes it; None if the node is none, or has none."""
        voter = None if node_id is None else self.voters.get(node_id)
        if voter is None or not self.is_dynamic or voter.directory_id == _NO_DIRECTORY:
            return None
        return voter.directory_id


def read_voters(partition: Partition) -> LoggedVoters | None:
    """Read the last voters in a copy of the cluster's metadata; None if it is damaged.

    Raises:
        OSError: a file cannot be read.
    """
    replay = CopyReplay(partition, lambda _problem: None, type_names=())
    image = replay.image_at(END)
    if replay.is_cut:
        return None
    return LoggedVoters(image.kraft_version >= 1, image.of(EntityKind.VOTER))


def check_configured_voters(path: str, server: ServerProperties) -> Iterator[StartProblem]:
    """Check that the static voters of a properties file fit the node."""
    is_voter = server.node_id in server.voters
    what = ""
    if CONTROLLER_ROLE in server.roles and server.voters and not is_voter:
        what = "a controller has to be one of controller.quorum.voters: it does not start"
    elif server.roles == _BROKER_ONLY and is_voter:
        what = "a broker cannot be one of controller.quorum.voters: it does not start"
    if what:
        yield StartProblem(
            invariants.VOTERS_MISMATCH.finding(
                Place(path),
                what,
                expected="the node ids of all controllers",
                found=f"node {server.node_id}, voters {_listed(server.voters)}",
            )
        )


def check_logged_voters(
    directory: LogDirectory, logged: LoggedVoters, node_id: int | None, roles: Collection[str]
) -> Iterator[Finding]:
    """Check that the voters in the cluster's metadata name this node with this directory.

    Args:
        roles: of the node; empty if unknown.
    """
    properties = directory.meta_properties
    if node_id is None or properties is None or not logged.is_dynamic or not logged.voters:
        return
    place = Place(str(directory.path / "meta.properties"))
    named = logged.directory_of(node_id)
    own = properties.directory_id_text
    if node_id not in logged.voters:
        if CONTROLLER_ROLE in roles:
            yield invariants.VOTERS_MISMATCH.finding(
                place,
                "this controller is not one of the voters: it observes until it is added",
                found=f"voters {_listed(logged.voters)}",
                severity=Severity.WARNING,
            )
    elif roles == _BROKER_ONLY:
        yield invariants.VOTERS_MISMATCH.finding(
            place,
            "the log names this broker as a voter: it takes part in the elections of an old quorum,"
            " and may never register with the new one",
            found=f"voters {_listed(logged.voters)}",
            severity=Severity.ERROR,
        )
    elif named not in (None, own):
        is_alone = len(logged.voters) == 1
        yield invariants.VOTERS_MISMATCH.finding(
            place,
            "the voters name this node with another directory id: "
            + (
                "no controller is elected, and a broker does not start"
                if is_alone
                else "it observes, and never votes"
            ),
            expected=named,
            found="a new one, which a broker creates" if own is None else own,
            severity=Severity.SEVERE if is_alone else Severity.ERROR,
        )


def _listed(voters: Collection[int]) -> str:
    return ", ".join(map(str, sorted(voters))) or "none"
