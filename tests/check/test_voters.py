"""Whether the voters in the cluster's metadata are this node, with this directory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from builders.log_directories import write_log_directory
from kdump.check.findings import Severity
from kdump.check.voters import LoggedVoters, check_configured_voters, check_logged_voters
from kdump.formats.server_properties import ServerProperties
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.metadata.metadata_nodes import Voter
from kdump.storage.local_disk import local

OWN = "V1dW8O41RR6_pKmks-3sKg"
OTHER = "3VrJIfeFdYrrH_6uDMIANg"
NO_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA"
NODE = 7
BROKER = ("broker",)
CONTROLLER = ("controller",)


@pytest.mark.parametrize(
    ("voters", "roles", "expected"),
    [
        ({NODE: OWN}, (), None),
        ({NODE: OWN, 8: OTHER}, CONTROLLER, None),
        ({NODE: OTHER}, (), Severity.SEVERE),
        ({NODE: OTHER}, CONTROLLER, Severity.SEVERE),
        ({NODE: OTHER, 8: OWN}, (), Severity.ERROR),
        ({NODE: NO_DIRECTORY}, CONTROLLER, None),
        ({8: OWN}, CONTROLLER, Severity.WARNING),
        ({8: OWN}, BROKER, None),
        ({8: OWN}, (), None),
        ({NODE: OWN}, BROKER, Severity.ERROR),
        ({}, CONTROLLER, None),
    ],
)
@pytest.mark.parametrize("is_dynamic", [True, False])
def test_a_voter_is_a_node_with_a_directory(
    voters: dict[int, str],
    roles: Collection[str],
    expected: Severity | None,
    is_dynamic: bool,
    tmp_path: Path,
) -> None:
    path = local(write_log_directory(tmp_path / "d1"))
    directory = read_log_directory(path, DirectoryKind.LOG_DIRECTORY)
    logged = LoggedVoters(is_dynamic, {node: Voter(node, voters[node]) for node in voters})

    found = list(check_logged_voters(directory, logged, NODE, frozenset(roles)))

    assert [each.severity for each in found] == ([expected] if expected and is_dynamic else [])


@pytest.mark.parametrize(
    ("roles", "voters", "is_refused"),
    [
        ("controller", "7@a:1,8@b:1", False),
        ("controller", "8@b:1", True),
        ("controller", "", False),
        ("broker,controller", "8@b:1", True),
        ("broker", "8@b:1", False),
        ("broker", " 8@b:1 , 7@a:1 ", True),
        ("broker", "", False),
    ],
)
def test_static_voters_are_controllers_and_not_brokers(
    roles: str, voters: str, is_refused: bool
) -> None:
    server = ServerProperties.of(
        {"node.id": "7", "process.roles": roles, "controller.quorum.voters": voters}
    )
    found = list(check_configured_voters("server.properties", server))
    assert [each.is_refusal for each in found] == [True] * is_refused
