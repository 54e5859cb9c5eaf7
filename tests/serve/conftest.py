"""A cluster that is dead, and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from builders.batches import batches
from builders.log_directories import TOPIC_ID, write_log_directory, write_partition
from builders.serving import CLUSTER, RunningServer, opened
from builders.serving_securely import ACLS, OPEN, RECORDS, admission
from kdump.formats import names
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata


@pytest.fixture(scope="session")
def shared_dead_cluster(fixtures: Path) -> Iterator[RunningServer]:
    """Return a server of the disks of a real cluster."""
    with opened_cluster(fixtures) as running:
        yield running


@pytest.fixture
def dead_cluster(shared_dead_cluster: RunningServer) -> Iterator[RunningServer]:
    """Return it for a test that only reads what it has, so that it says nothing."""
    yield shared_dead_cluster
    assert shared_dead_cluster.lines == []


@pytest.fixture
def dead_cluster_of_a_test(fixtures: Path) -> Iterator[RunningServer]:
    """Return such a server for one test, which may join, commit and be refused there."""
    with opened_cluster(fixtures) as running:
        yield running


def opened_cluster(fixtures: Path) -> RunningServer:
    return opened(*(fixtures / "states" / "clean" / name for name in CLUSTER))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with a partition of ten batches, offsets 0 to 29."""
    root = write_log_directory(tmp_path / "logs", high_watermarks={("orders", 0): 30})
    write_partition(root / "orders-0", {0: b"".join(batches(10))})
    return root


@pytest.fixture
def server(log_dir: Path) -> Iterator[RunningServer]:
    """Return a server of that directory."""
    with opened(log_dir) as running:
        yield running


@pytest.fixture(scope="module")
def two_topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory with the topics orders and secrets, alone in its directory."""
    root = tmp_path_factory.mktemp("access") / "logs"
    write_log_directory(root, high_watermarks={("orders", 0): RECORDS, ("secrets", 0): RECORDS})
    write_partition(root / "orders-0", {0: b"".join(batches(10))})
    other = encode_partition_metadata(PartitionMetadata(0, UUID(int=TOPIC_ID.int + 1)))
    others = {names.PARTITION_METADATA: other}
    write_partition(root / "secrets-0", {0: b"".join(batches(10))}, others=others)
    return root


@pytest.fixture(scope="module")
def plain(two_topics: Path) -> Iterator[RunningServer]:
    """Return a server of these that asks for credentials without TLS."""
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, ACLS, with_tls=False)
    with server:
        yield server


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the connections of a test."""
    yield
    while OPEN:
        OPEN.pop().close()
