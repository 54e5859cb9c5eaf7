"""Kafka refuses to start on log directories if and only if kdump says so, for the same reason."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.java_server import JavaServer
from builders.samples import examples
from kdump.check.start import first_refusal
from kdump.check.voters import check_configured_voters
from kdump.formats import names
from kdump.formats.meta_properties import encode_meta_properties
from kdump.formats.server_properties import ServerProperties
from kdump.formats.uuids import format_uuid
from kdump.jobs.node_identity import NodeIdentity, ServerFile, read_node_directory
from kdump.repair.rebuild.node_directories import GivenIdentity
from kdump.storage.local_disk import local

pytestmark = pytest.mark.differential

NODE: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
DIRECTORY_NAMES: Final = ("d1", "d2", "D", "d10", "\u00e9", "\ufb01", "\U0001f600")
"""Java and Python sort the last two differently."""
SHARED: Final = UUID(int=7 << 100)
RESERVED: Final = UUID(int=99)
RARELY: Final = st.integers(0, 15).map(lambda number: number == 15)

REASONS: Final = (
    (r"No readable meta.properties files found", {"meta-properties-missing", "-malformed"}),
    (r"Invalid cluster.id in: (?P<file>.*)\. Expected ", {"meta-properties-mismatch"}),
    (r"Stored node id .* in (?P<file>.*)\. If you moved", {"meta-properties-mismatch"}),
    (r"Invalid reserved directory ID .* found in (?P<dir>.*)$", {"directory-id-reserved"}),
    (r"Duplicate directory ID .* but also of (?P<dir>.*)$", {"directory-id-twice"}),
    (r"I/O error in metadata log directory (?P<dir>.*)\. Cannot", {"meta-properties-malformed"}),
    (r"unexpected metadata location in data directory `(?P<path>[^`]*)`", {"metadata-misplaced"}),
    (r"No `meta.properties` found in (?P<dir>.*) \(have", {"meta-properties-missing"}),
    (r"Error: (node|cluster) ID not found in (?P<dir>.*)$", {"meta-properties-incomplete"}),
    (r"", {"bootstrap-malformed"}),
)
"""Kafka's reasons, and kdump's codes for them."""


@dataclass(frozen=True)
class Disk:
    """A log directory: its properties (None for none), and what else is odd in it."""

    properties: Mapping[str, str] | None
    is_torn: bool
    is_link: bool
    has_metadata: bool
    bootstrap: bytes | None

    def write(self, path: Path) -> None:
        path.mkdir()
        file = path / names.META_PROPERTIES
        if self.is_link:
            file.symlink_to("nowhere")
        elif self.properties is not None:
            lines = "".join(f"{key}={value}\n" for key, value in self.properties.items())
            file.write_text(lines + ("x=\\u00" if self.is_torn else ""))
        if self.has_metadata:
            (path / str(names.CLUSTER_METADATA_PARTITION)).mkdir()
        if self.bootstrap is not None:
            (path / names.BOOTSTRAP_CHECKPOINT).write_bytes(self.bootstrap)


def properties(number: int) -> st.SearchStrategy[dict[str, str]]:
    """Mostly the properties of node 1 in cluster A."""
    usual: dict[str, list[str | None]] = {
        "version": [*["1"] * 12, "0", " 1 ", "2", "x", None],
        "cluster.id": [*["A"] * 16, "B", "", None],
        "node.id": [*["1"] * 16, "2", "+1", "x", " 1", None],
        "broker.id": [None, "1", "2"],
        "directory.id": [
            *[format_uuid(UUID(int=number + 1000 << 64))] * 8,
            *[format_uuid(SHARED)] * 4,
            *(format_uuid(RESERVED), "AAAAAAAAAAAAAAAAAAAAAA", "x", None),
        ],
    }
    return st.fixed_dictionaries(
        {key: st.sampled_from(values) for key, values in usual.items()}
    ).map(lambda found: {key: value for key, value in found.items() if value is not None})


def disks(number: int, bootstrap: bytes) -> st.SearchStrategy[Disk]:
    return st.builds(
        Disk,
        properties=st.one_of(*[properties(number)] * 8, st.none()),
        is_torn=RARELY,
        is_link=RARELY,
        has_metadata=RARELY,
        bootstrap=st.sampled_from(
            [*[None] * 8, bootstrap, bootstrap[:-1], b"", b"x" * 70, bytes(70)]
        ),
    )


@st.composite
def nodes(draw: st.DrawFn, bootstrap: bytes) -> tuple[dict[str, Disk], str | None]:
    """Directories in the order of ``log.dirs``, and the one for the metadata."""
    chosen = draw(st.lists(st.sampled_from(DIRECTORY_NAMES), min_size=1, max_size=4, unique=True))
    found = {name: draw(disks(number, bootstrap)) for number, name in enumerate(chosen)}
    return found, draw(st.sampled_from([None, *chosen]))


@pytest.fixture(scope="module")
def server(java_classpath: str) -> Iterator[JavaServer]:
    with JavaServer(java_classpath, "IdentityServer", "-Dfile.encoding=UTF-8") as running:
        yield running


def reason_of(said: Mapping[str, str]) -> tuple[set[str], str | None] | None:
    """Kafka's reason as codes of kdump, with the path that it names; None if it starts."""
    message = said.get("refused")
    if message is None:
        return None
    found, codes = next(
        (match, codes) for pattern, codes in REASONS if (match := re.search(pattern, message))
    )
    named = found.groupdict()
    path = named.get("file") or named.get("path")
    if named.get("dir"):
        path = f"{named['dir']}/{names.META_PROPERTIES}"
    return {code if code[0] != "-" else f"meta-properties{code}" for code in codes}, path


def require_equal(node: NodeIdentity, said: Mapping[str, str]) -> None:
    expected, found = reason_of(said), first_refusal(node.problems)
    assert (found is None) == (expected is None), (found, said)
    if found is not None and expected is not None:
        codes, path = expected
        assert found.code in codes, (found, said)
        assert path in (None, found.place.path), (found, said)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(3))
@given(data=st.data())
def test_kafka_refuses_for_the_same_reason_and_starts_after_the_repair(
    server: JavaServer, fixtures: Path, data: st.DataObject
) -> None:
    bootstrap = (fixtures / "out/clean/d1" / names.BOOTSTRAP_CHECKPOINT).read_bytes()
    chosen, metadata = data.draw(nodes(bootstrap))
    with tempfile.TemporaryDirectory() as folder:
        file = NODE | {"log.dirs": ",".join(f"{folder}/{name}" for name in chosen)}
        if metadata is not None:
            file["metadata.log.dir"] = f"{folder}/{metadata}"
        words = [f"{key}={value}" for key, value in file.items()]
        for name, disk in chosen.items():
            disk.write(Path(folder, name))
        node = NodeIdentity(
            [read_node_directory(local(f"{folder}/{name}")) for name in chosen],
            ServerFile("server.properties", ServerProperties.of(file)),
        )
        require_equal(node, server.ask_words(words))
        shutil.rmtree(folder)
        Path(folder).mkdir()
        for name, disk in chosen.items():
            disk.write(Path(folder, name))

        new_ids = {each.path: None for each in node.directories}
        repaired = node.repaired(GivenIdentity("A", 1, new_ids))
        for each in repaired:
            path = each.directory.path.local_path / names.META_PROPERTIES
            path.unlink(missing_ok=True)
            path.write_bytes(encode_meta_properties(each.properties))

        after = node.after(repaired)
        require_equal(after, server.ask_words(words))
        assert not any(
            each.finding.code.startswith(("meta-properties", "directory-id"))
            for each in after.problems
        )


LISTENERS: Final = {
    "broker": "PLAINTEXT://127.0.0.1:9092",
    "controller": "CONTROLLER://127.0.0.1:9093",
    "broker,controller": NODE["listeners"],
}


@pytest.mark.parametrize("roles", LISTENERS)
@pytest.mark.parametrize("voters", ["", "1@a:1", "2@a:1", "1@a:1,2@b:2", " 2@a:1 , 3@b:1"])
def test_kafka_refuses_the_same_static_voters(
    server: JavaServer, tmp_path: Path, roles: str, voters: str
) -> None:
    file = NODE | {
        "process.roles": roles,
        "listeners": LISTENERS[roles],
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(tmp_path),
        "controller.quorum.voters": voters,
    }
    refused = server.ask_words(f"{key}={value}" for key, value in file.items())["refused"]
    found = list(check_configured_voters("file", ServerProperties.of(file)))
    # Without such voters, Kafka refuses the empty directory.
    assert ("set of voters" in refused) == bool(found), refused
    assert ("meta.properties" in refused) == (not found), refused
