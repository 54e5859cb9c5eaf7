"""A cluster that has lived, and its disks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.cluster_disks import ClusterDisks, write_disks
from builders.cluster_jvms import CLIENTS, KAFKA_4_3, ClusterJvms
from builders.memory import in_memory


@pytest.fixture(scope="session")
def jvms_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ClusterJvms]]:
    """Return what gives the JVMs of a classpath; those of another stay until the end."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def of(classpath: str) -> ClusterJvms:
            return stack.enter_context(
                ClusterJvms(classpath, tmp_path_factory.mktemp("cluster-jvms"))
            )

        yield of


@pytest.fixture(scope="session", params=[KAFKA_4_3])
def cluster_jvms(
    request: pytest.FixtureRequest, jvms_of: Callable[[str], ClusterJvms]
) -> Iterator[ClusterJvms]:
    """Return JVMs for the nodes and clients of clusters, one cluster at a time.

    They are of Kafka 4.3.1, or of the newest Kafka in tests that ask for it (``ON_BOTH_KAFKAS``).
    """
    jvms = jvms_of(request.getfixturevalue(request.param))
    yield jvms
    # Clients that a test has left open ask for their brokers for ever.
    jvms.kill(CLIENTS)


@pytest.fixture(scope="session")
def cluster_disks(
    cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterDisks]:
    """Return the disks of a cluster; copy them before you change anything."""
    with in_memory(tmp_path_factory.mktemp("cluster-disks")) as folder:
        yield write_disks(cluster_jvms, folder)


@pytest.fixture
def case_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for a copy of the disks."""
    with in_memory(tmp_path) as folder:
        yield folder
