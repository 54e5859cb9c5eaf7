"""Images of metadata as records: what cannot be written is said, and secrets are not shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kdump.formats.java.jackson import node_text
from kdump.formats.message_json import MessageJsonError
from kdump.state.metadata.image_records import (
    ImageLoss,
    ImageRecord,
    UnwritableImageError,
    record_from_json,
    records_of,
)
from kdump.state.metadata.metadata_image import (
    EntityKind,
    MetadataImage,
    MetadataRecord,
    MetadataReplay,
)
from kdump.state.metadata.metadata_rows import image_row

SECRET = b"do not print"


def image_of(*records: ImageRecord) -> MetadataImage:
    replay = MetadataReplay()
    for at, each in enumerate(records):
        replay.take(MetadataRecord(at, 0, 0, each.name, each.fields))
    return replay.image()


def not_lost(loss: ImageLoss) -> None:
    pytest.fail(loss.value)


def level(number: int) -> ImageRecord:
    fields = {"name": "metadata.version", "featureLevel": number}
    return ImageRecord("FEATURE_LEVEL_RECORD", 0, fields)


CREDENTIAL = ImageRecord(
    "USER_SCRAM_CREDENTIAL_RECORD",
    0,
    {
        "name": "alice",
        "mechanism": 1,
        "salt": SECRET,
        "storedKey": SECRET,
        "serverKey": SECRET,
        "iterations": 4096,
    },
)


def test_a_credential_is_written_as_it_was_read() -> None:
    image = image_of(level(30), CREDENTIAL)
    assert list(records_of(image, on_loss=not_lost)) == [level(30), CREDENTIAL]


def test_secrets_are_in_no_text_and_no_row() -> None:
    image = image_of(level(30), CREDENTIAL)
    shown = repr(image) + repr(image_row(image))
    assert "alice" in shown
    assert SECRET.decode() not in shown


def test_what_a_level_cannot_hold_is_reported_once() -> None:
    other = CREDENTIAL._replace(fields={**CREDENTIAL.fields, "name": "bob"})
    lost: list[ImageLoss] = []
    image = image_of(level(30), CREDENTIAL, other)
    assert list(records_of(image, 10, on_loss=lost.append)) == [level(10)]
    assert lost == [ImageLoss.SCRAM]


def test_eligible_leader_replicas_are_reported_where_their_feature_is_off() -> None:
    topic = ImageRecord("TOPIC_RECORD", 0, {"name": "t", "topicId": "A" * 21 + "g"})
    fields: dict[str, Any] = {
        "partitionId": 0,
        "topicId": "A" * 21 + "g",
        "replicas": [1],
        "isr": [],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": -1,
        "leaderRecoveryState": 0,
        "leaderEpoch": 5,
        "partitionEpoch": 6,
        "directories": ["A" * 22],
        "eligibleLeaderReplicas": [1],
        "lastKnownElr": None,
    }
    partition = ImageRecord("PARTITION_RECORD", 2, fields)
    feature = level(1)._replace(
        fields={"name": "eligible.leader.replicas.version", "featureLevel": 1}
    )
    with_elr = image_of(level(30), feature, topic, partition)
    assert list(records_of(with_elr, on_loss=not_lost)) == [
        level(30),
        feature,
        topic,
        partition,
    ]
    lost: list[ImageLoss] = []
    written = list(records_of(image_of(level(30), topic, partition), on_loss=lost.append))
    assert written[-1].fields["eligibleLeaderReplicas"] is None
    assert lost == [ImageLoss.ELIGIBLE_LEADER_REPLICAS]


@pytest.mark.parametrize(
    ("levels", "message"),
    [((), "no level of metadata.version"), ((6,), "metadata.version 6 is unknown"), ((34,), "34")],
)
def test_an_unknown_metadata_version_is_refused(levels: tuple[int, ...], message: str) -> None:
    with pytest.raises(UnwritableImageError, match=message):
        list(records_of(image_of(*map(level, levels)), on_loss=not_lost))


def test_kraft_version_is_in_control_records_only() -> None:
    image = image_of(level(30), ImageRecord("KRAFT_VERSION", 0, {"kRaftVersion": 1}))
    assert image.of(EntityKind.FEATURE)["kraft.version"] == 1
    assert list(records_of(image, on_loss=not_lost)) == [level(30)]


def test_a_record_is_read_back_from_its_json() -> None:
    assert record_from_json(json.loads(node_text(CREDENTIAL.node()))) == CREDENTIAL


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ([], "must be an object with type, version and data"),
        ({"type": "X", "version": 0, "data": {}}, "no record type 'X'"),
        ({"type": [], "version": 0, "data": {}}, "no record type"),
        ({"type": "NO_OP_RECORD", "version": "0", "data": {}}, "version: must be a whole number"),
        ({"type": "NO_OP_RECORD", "version": 1, "data": {}}, "no version 1 of NoOpRecord"),
        ({"type": "NO_OP_RECORD", "version": 0, "data": {"a": 1}}, "a: NoOpRecord has no such"),
    ],
)
def test_json_that_is_no_record_is_refused(node: object, message: str) -> None:
    with pytest.raises(MessageJsonError, match=message):
        record_from_json(node)
