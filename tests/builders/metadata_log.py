"""Write a cluster's metadata log with records of topics, partitions and configurations."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

from builders.batches import batch, record
from builders.log_directories import write_partition
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.partition import Partition, read_partition
from kdump.storage.local_disk import local

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BEGIN_TRANSACTION = b"\x01\x17\x00\x00"
END_TRANSACTION = b"\x01\x18\x00\x00"
ABORT_TRANSACTION = b"\x01\x19\x00\x00"


def topic_record(name: str, topic_id: int) -> bytes:
    """Encode the creation of a topic, with a number for its id."""
    return b"\x01\x02\x00" + _text(name) + UUID(int=topic_id).bytes + b"\x00"


def feature_record(name: str, level: int) -> bytes:
    """Encode the level of a feature."""
    return b"\x01\x0c\x00" + _text(name) + struct.pack(">h", level) + b"\x00"


def remove_topic_record(topic_id: int) -> bytes:
    """Encode the deletion of a topic."""
    return b"\x01\x09\x00" + UUID(int=topic_id).bytes + b"\x00"


def config_record(resource: int, name: str, key: str, value: str | None) -> bytes:
    """Encode the value of a property; None removes it."""
    text = b"\x00" if value is None else _text(value)
    return b"\x01\x04\x00" + bytes([resource]) + _text(name) + _text(key) + text + b"\x00"


def partition_record(
    topic_id: int,
    number: int,
    replicas: Sequence[int],
    directories: Sequence[int],
    leader: int | None = None,
    leader_epoch: int = 0,
) -> bytes:
    """Encode a new or updated partition, with numbers for the ids of its directories.

    The first replica leads, unless another ``leader`` is given, such as -1 for none.
    """
    return (
        b"\x01\x03\x01"
        + struct.pack(">i", number)
        + UUID(int=topic_id).bytes
        + _numbers(replicas)
        + _numbers(replicas)
        + _numbers(())
        + _numbers(())
        + struct.pack(">iii", replicas[0] if leader is None else leader, leader_epoch, 0)
        + _ids(directories)
        + b"\x00"
    )


def partition_change_record(
    topic_id: int,
    number: int,
    replicas: Sequence[int] | None = None,
    directories: Sequence[int] | None = None,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
) -> bytes:
    """Encode a change to some fields of a partition."""
    tagged = [
        bytes([tag, len(content)]) + content
        for tag, content in (
            (0, None if isr is None else _numbers(isr)),
            (1, None if leader is None else struct.pack(">i", leader)),
            (2, None if replicas is None else _numbers(replicas)),
            (8, None if directories is None else _ids(directories)),
        )
        if content is not None
    ]
    return (
        b"\x01\x05\x01"
        + struct.pack(">i", number)
        + UUID(int=topic_id).bytes
        + bytes([len(tagged)])
        + b"".join(tagged)
    )


def write_metadata_log(log_dir: Path, values: Iterable[bytes], *, epoch: int = 0) -> Partition:
    """Write ``__cluster_metadata-0`` in ``log_dir``: a batch for each of ``values``."""
    log = b"".join(
        batch([record(at, None, value)], partition_leader_epoch=epoch)
        for at, value in enumerate(values)
    )
    topic = names.CLUSTER_METADATA_TOPIC
    path = write_partition(log_dir / f"{topic}-0", {0: log})
    return read_partition(local(path), TopicPartition(topic, 0), PartitionState.LIVE)


def _numbers(numbers: Sequence[int]) -> bytes:
    return bytes([len(numbers) + 1]) + b"".join(struct.pack(">i", each) for each in numbers)


def _ids(ids: Sequence[int]) -> bytes:
    return bytes([len(ids) + 1]) + b"".join(UUID(int=each).bytes for each in ids)


def _text(text: str) -> bytes:
    data = text.encode()
    more, least = divmod(len(data) + 1, 0x80)  # an unsigned varint
    return bytes([least | 0x80, more] if more else [least]) + data
