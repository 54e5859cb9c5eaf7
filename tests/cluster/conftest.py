"""A cluster that has lived, and its disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.cluster_disks import ClusterDisks, write_disks
from builders.cluster_jvms import ClusterJvms
from builders.memory import in_memory


@pytest.fixture(scope="session")
def cluster_jvms(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterJvms]:
    """Return JVMs for the nodes and clients of clusters, one cluster at a time.

    They are of Kafka 4.3.1, or of the newest Kafka in tests that ask for it (``ON_BOTH_KAFKAS``).
    """
    classpath = request.getfixturevalue(getattr(request, "param", "java_classpath"))
    with ClusterJvms(classpath, tmp_path_factory.mktemp("cluster-jvms")) as running:
        yield running


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
