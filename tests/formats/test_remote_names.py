"""Names of remote segments in ``LocalTieredStorage``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.names import TopicPartition
from kdump.formats.remote_names import (
    RemoteFileKind,
    RemoteFileName,
    TopicIdPartition,
    parse_remote_directory_name,
    parse_remote_file_name,
)

IDS = st.text("abcXYZ019_-", min_size=22, max_size=22)
TOPICS = st.text("ab-._9", min_size=1, max_size=8)


@given(TOPICS, st.integers(0, 2**31 - 1), IDS)
def test_a_directory_has_topic_partition_and_topic_id(
    topic: str, number: int, topic_id: str
) -> None:
    owner = TopicIdPartition(TopicPartition(topic, number), topic_id)
    assert parse_remote_directory_name(str(owner)) == owner


@given(st.integers(0, 2**63 - 1), IDS, st.sampled_from(RemoteFileKind))
def test_a_file_has_offset_segment_id_and_kind(
    offset: int, segment_id: str, kind: RemoteFileKind
) -> None:
    name = RemoteFileName(offset, segment_id, kind)
    assert parse_remote_file_name(str(name)) == name


@given(st.text())
def test_any_other_name_is_none(text: str) -> None:
    assert parse_remote_file_name(text) is None
    assert parse_remote_directory_name(text) is None
