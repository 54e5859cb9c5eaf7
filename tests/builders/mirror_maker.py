"""MirrorMaker 2, which copies topics and the offsets of groups from one cluster into another."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = "dead"
"""The name of the source: its topics get names that begin with it and a dot."""
_TARGET: Final = "new"
_INTERNAL: Final = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
_STORES: Final = ("offset.storage", "status.storage", "config.storage")
PROPERTIES: Final = {
    "clusters": f"{SOURCE}, {_TARGET}",
    f"{SOURCE}->{_TARGET}.enabled": "true",
    f"{_TARGET}->{SOURCE}.enabled": "false",
    "replication.factor": "1",
    **{f"{each}.replication.factor": "1" for each in (*_INTERNAL, *_STORES)},
    # Nothing is written to the source.
    "offset-syncs.topic.location": "target",
    "emit.heartbeats.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "sync.group.offsets.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.groups.interval.seconds": "3",
    "offset.lag.max": "0",
}


@contextlib.contextmanager
def mirroring(
    classpath: str,
    source: str,
    target: str,
    topics: Iterable[str],
    groups: Iterable[str],
    folder: Path,
) -> Iterator[Path]:
    """Run it while the context is open.

    Args:
        source: an address of the source, likewise ``target``.
        groups: whose offsets to copy.
        folder: for its properties and its log.

    Yields:
        The file of the log.
    """
    given = {
        **PROPERTIES,
        f"{SOURCE}.bootstrap.servers": source,
        f"{_TARGET}.bootstrap.servers": target,
        f"{SOURCE}->{_TARGET}.topics": ",".join(topics),
        f"{SOURCE}->{_TARGET}.groups": ",".join(groups),
    }
    properties, log = folder / "mirror.properties", folder / "mirror.log"
    properties.write_text("".join(f"{name} = {value}\n" for name, value in given.items()))
    words = ["-Xmx512m", "-cp", classpath, "org.apache.kafka.connect.mirror.MirrorMaker"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["java", *words, str(properties)], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield log
    finally:
        process.kill()
        process.wait()
