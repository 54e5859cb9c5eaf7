"""Records of the cluster's metadata have the bytes that Kafka's generated classes write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from builders.java_server import JavaServer
from builders.messages import message_values
from builders.samples import examples
from kdump.formats.internal_topics import encode_cluster_metadata
from kdump.formats.java.jackson import message_node, node_text
from kdump.formats.schema import RecordType
from kdump.formats.schemas.metadata import RECORD_TYPES

pytestmark = pytest.mark.differential

SINCE_4_4 = 29
"""UnregisterControllerRecord, which the classes of 4.3.1 do not have."""
ALL_VERSIONS = [
    pytest.param(record_type, version, id=f"{record_type.name}-{version}")
    for record_type in RECORD_TYPES.values()
    if record_type.id != SINCE_4_4
    for version in range(record_type.value.versions.highest + 1)
]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("record_type", "version"), ALL_VERSIONS)
def test_random_values_of_every_type_and_version(
    record_type: RecordType, version: int, metadata_server: JavaServer
) -> None:
    @settings(
        max_examples=examples(0.4), suppress_health_check=[HealthCheck.too_slow], deadline=None
    )
    @given(message_values(record_type.value, version))
    def check(value: dict[str, Any]) -> None:
        json = node_text(message_node(record_type.value, value, version))
        answer = metadata_server.ask_words(["encode", str(record_type.id), str(version), json])
        encoded = encode_cluster_metadata(record_type.name, version, value)
        assert encoded.hex() == answer["bytes"]

    check()
