"""Configurations of topics: those of the copy, or such that nothing is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import MetadataEvidence, place_of
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.overrides import Overrides
from kdump.repair.cluster.topic_choice import TopicChoice, topic_ids
from kdump.state.metadata.cluster_plan import PlannedConfig, Source, SourceKind
from kdump.state.metadata.config_keys import REMOTE_STORAGE_ENABLE
from kdump.state.metadata.metadata_image import EntityKind

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_KEEP_EVERYTHING: Final = {
    # The broker's own default may be to compact.
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
_SEGMENT_BYTES: Final = "104857600"
_INTERNAL: Final[Mapping[str, Mapping[str, str]]] = {
    "__consumer_offsets": {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": _SEGMENT_BYTES,
    },
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": _SEGMENT_BYTES,
        UNCLEAN_ELECTION: "false",
    },
    "__share_group_state": {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        "segment.bytes": _SEGMENT_BYTES,
    },
    "__remote_log_metadata": {"cleanup.policy": "delete", "retention.ms": "-1"},
}
"""What brokers give their own topics (``GroupCoordinatorService.groupMetadataTopicConfigs``,
``TransactionStateManager.transactionStateTopicConfigs``,
``ShareCoordinatorService.shareGroupStateTopicConfigs``, ``TopicBasedRemoteLogMetadataManager``).
How many replicas have to be in sync is left to the default of the brokers."""
_REMOTE_LOG_METADATA: Final = "__remote_log_metadata"


class ConfigPlanner(Struct, frozen=True):
    """Plans the configurations of topics.

    Attributes:
        in_copy: values by property of each topic in the chosen copy, by name.
        copy_source: the source of what comes from it.
        others: the other copies, the most advanced one first.
    """

    in_copy: Mapping[str, Mapping[str, str]]
    copy_source: Source
    others: Sequence[MetadataEvidence]
    overrides: Overrides
    notices: Notices

    def plan(self, topic: TopicChoice) -> tuple[PlannedConfig, ...]:
        """The properties of a topic, by name."""
        found: dict[str, tuple[str, Source]] = {}
        if topic.in_copy:
            values = self.in_copy.get(topic.name, {})
            found = {name: (values[name], self.copy_source) for name in values}
        elif topic.in_old_copies and (known := self._in_other(topic)) is not None:
            found = known
        elif topic.name in _INTERNAL:
            source = Source(SourceKind.RULE, "as brokers create it")
            values = _INTERNAL[topic.name]
            found = {name: (values[name], source) for name in values}
            self.notices.add(notice_codes.INTERNAL_CONFIG, _text(values), topic.name)
        else:
            found = self._guessed(topic)
        for name, value in self.overrides.topic(topic.name).configs.items():
            found[name] = (value, Source(SourceKind.SET, "configuration"))
        return tuple(PlannedConfig(name, *found[name]) for name in sorted(found))

    def _in_other(self, topic: TopicChoice) -> dict[str, tuple[str, Source]] | None:
        """The properties in the most advanced of the other copies that have the topic."""
        for copy in self.others:
            if topic.topic_id in topic_ids(copy.image).values():
                values = copy.image.of(EntityKind.CONFIG).get(f"topic:{topic.name}", {})
                source = Source(SourceKind.OLD_COPY, place_of(copy.directory))
                return {name: (values[name], source) for name in values}
        return None

    def _guessed(self, topic: TopicChoice) -> dict[str, tuple[str, Source]]:
        """Nothing is deleted or compacted until somebody decides."""
        source = Source(SourceKind.GUESS, "nothing is deleted")
        values: dict[str, str] = dict(_KEEP_EVERYTHING)
        found = {name: (values[name], source) for name in values}
        if _REMOTE_LOG_METADATA in topic.named_by:
            values[REMOTE_STORAGE_ENABLE] = "true"
            claim = Source(SourceKind.CLAIM, _REMOTE_LOG_METADATA)
            found[REMOTE_STORAGE_ENABLE] = ("true", claim)
        self.notices.add(
            notice_codes.UNKNOWN_CONFIG,
            _text(values),
            topic.name,
            override=f"topic.{topic.name}.config.KEY=VALUE",
        )
        return found


def _text(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values))
