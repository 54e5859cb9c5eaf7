"""Kafka's own tools and brokers, and files written by Kafka's own classes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.broker import BrokerHost
from builders.duel import Duel, Files, files_of, generate
from builders.java_server import JavaServer
from builders.memory import in_memory
from builders.official import OfficialTool


@pytest.fixture(scope="session")
def broker_host(
    java_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerHost]:
    """Return a host for real brokers, one at a time in one JVM: all but the first start quickly."""
    with BrokerHost(java_classpath, tmp_path_factory.mktemp("brokers") / "log") as running:
        yield running


@pytest.fixture(scope="module")
def broker_log_dirs(
    fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Path]]:
    """Return a copy of a broker's two directories after a clean shutdown."""
    with in_memory(tmp_path_factory.mktemp("broker")) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        yield [folder / "clean" / name for name in ("d1", "d2")]


@pytest.fixture(scope="session")
def duel(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duel]:
    """Return the official tool and kdump, to run over the same files."""
    arena = tmp_path_factory.mktemp("arena")
    with OfficialTool(java_classpath, arena) as official:
        yield Duel(official, arena)


@pytest.fixture(scope="session")
def segments(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """Return two partitions of each kind of ``SegmentWriter``, as ``KIND-NUMBER``."""
    return _generated(java_classpath, tmp_path_factory.mktemp("segments"), "SegmentWriter", 30)


@pytest.fixture(scope="session")
def internal_topics(
    java_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Files]:
    """Return eight partitions of each internal topic, as ``TOPIC-NUMBER``."""
    folder = tmp_path_factory.mktemp("internal-topics")
    return _generated(java_classpath, folder, "InternalTopicWriter", 40)


@pytest.fixture(scope="session")
def metadata_server(java_classpath: str) -> Iterator[JavaServer]:
    """Return Kafka's images of the cluster's metadata as a server."""
    with JavaServer(java_classpath, "MetadataServer") as running:
        yield running


def _generated(classpath: str, folder: Path, program: str, count: int) -> dict[str, Files]:
    generate(classpath, program, folder, 1, count)
    return {path.name: files_of(path) for path in sorted(folder.iterdir())}
