"""Decisions that people make with ``--set``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from kdump.errors import UsageProblem
from kdump.formats.uuids import parse_uuid
from kdump.state.metadata.metadata_image import KRAFT_VERSION

RESERVED_TOPIC_IDS: Final = ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ")
"""``Uuid.RESERVED``: none, and the id of the metadata itself."""
KEEP: Final = "keep"
DROP: Final = "drop"
NO_COPY: Final = "none"
_MOST: Final = 2**63 - 1
_MOST_INT32: Final = 2**31 - 1
_MOST_INT16: Final = 2**15 - 1


class TopicOverrides(Struct, frozen=True):
    """What ``--set topic.NAME...`` says of a topic; None for what it does not say.

    Attributes:
        is_kept: whether the topic is in the plan.
        partitions: how many.
        configs: values by property.
        leaders: nodes by partition; likewise ``replicas`` and ``leader_epochs``.
    """

    is_kept: bool | None = None
    topic_id: str | None = None
    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    leaders: Mapping[int, int] = field(default_factory=dict)
    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


class Overrides(Struct, frozen=True):
    """What ``--set`` says; None for what it does not say.

    Attributes:
        copy: the copy to start with: a node id, with a log directory after a colon where the node
            has several; or ``none``.
        is_stray_kept: whether directories that are ``-stray`` count as partitions.
        is_deleted_kept: whether topics count that a copy deletes and that disks still have.
        is_unclean_kept: whether unclean leader election stays on where no order of starts is right.
        features: levels by name.
        topics: by name.
    """

    cluster_id: str | None = None
    copy: str | None = None
    snapshot_offset: int | None = None
    snapshot_epoch: int | None = None
    kraft_version: int | None = None
    controller_listener: str | None = None
    next_producer_id: int | None = None
    is_stray_kept: bool | None = None
    is_deleted_kept: bool | None = None
    is_unclean_kept: bool | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, TopicOverrides] = field(default_factory=dict)

    def topic(self, name: str) -> TopicOverrides:
        """What is said of a topic."""
        return self.topics.get(name, _NOTHING)


_NOTHING: Final = TopicOverrides()

Settings = Iterable[tuple[str, str]]
"""Keys and values of ``--set``, in the order in which they were given."""


def cluster_id_of(settings: Settings) -> str | None:
    """The cluster that ``cluster.id`` names: it decides which collections count."""
    return dict(settings).get("cluster.id")


def parse_overrides(settings: Settings, topics: Collection[str]) -> Overrides:
    """Understand ``--set``.

    Args:
        settings: as typed; of two with one key the last counts.
        topics: the names of all topics that a collection has, because names may have dots.

    Raises:
        UsageProblem: there is no such decision, or the value makes no sense.
    """
    plain: dict[str, object] = {}
    features: dict[str, int] = {}
    by_topic: dict[str, dict[str, object]] = {}
    for key, value in dict(settings).items():
        if key in _PLAIN:
            name, parse = _PLAIN[key]
            plain[name] = parse(key, value)
        elif key.startswith("feature."):
            if key == f"feature.{KRAFT_VERSION}":
                raise UsageProblem(f"--set {key}: the key is {KRAFT_VERSION}")
            features[key.removeprefix("feature.")] = _number(key, value, _MOST_INT16)
        elif key.startswith("topic."):
            _add_topic_setting(by_topic, key, value, topics)
        else:
            raise UsageProblem(f"--set {key}: there is no such decision; see kdump-metadata(1)")
    return Overrides(
        **plain,  # type: ignore[arg-type]
        features=features,
        topics={
            name: TopicOverrides(**found)  # type: ignore[arg-type]
            for name, found in by_topic.items()
        },
    )


def _number(key: str, value: str, most: int, least: int = 0) -> int:
    if not re.fullmatch("[0-9]{1,19}", value) or not least <= int(value) <= most:
        raise UsageProblem(f"--set {key}={value}: not a number from {least} to {most}")
    return int(value)


def _text(key: str, value: str) -> str:
    if not value:
        raise UsageProblem(f"--set {key}=: the value is missing")
    return value


def _offset(key: str, value: str) -> int:
    return _number(key, value, _MOST, 1)


def _epoch(key: str, value: str) -> int:
    return _number(key, value, _MOST_INT32 - 1, 1)


def _choice(key: str, value: str, words: tuple[str, str]) -> bool:
    if value not in words:
        raise UsageProblem(f"--set {key}={value}: not {words[0]} or {words[1]}")
    return value == words[0]


def _kept(key: str, value: str) -> bool:
    return _choice(key, value, (KEEP, DROP))


_PLAIN: Final = {
    "cluster.id": ("cluster_id", _text),
    "copy": ("copy", _text),
    "snapshot.offset": ("snapshot_offset", _offset),
    "snapshot.epoch": ("snapshot_epoch", _epoch),
    KRAFT_VERSION: ("kraft_version", lambda key, value: _number(key, value, 1)),
    "controller.listener": ("controller_listener", _text),
    "next.producer.id": ("next_producer_id", lambda key, value: _number(key, value, _MOST)),
    "stray": ("is_stray_kept", _kept),
    "deleted": ("is_deleted_kept", _kept),
    "unclean": ("is_unclean_kept", lambda key, value: _choice(key, value, ("on", "off"))),
}
"""The attribute of each key, and what parses its value."""

_OF_PARTITION: Final = re.compile(
    r"(?P<topic>.+)\.partition\.(?P<number>[0-9]{1,10})\.(?P<what>leader|replicas|leader_epoch)"
)
_OF_TOPIC: Final = re.compile(r"(?P<topic>.+)\.(?P<what>id|partitions)")


def _add_topic_setting(
    found: dict[str, dict[str, object]], key: str, value: str, topics: Collection[str]
) -> None:
    rest = key.removeprefix("topic.")
    readings: list[tuple[str, str, str]] = [(rest, "keep", "")]
    readings += (
        (match["topic"], match["what"], match.groupdict().get("number", ""))
        for match in (_OF_PARTITION.fullmatch(rest), _OF_TOPIC.fullmatch(rest))
        if match is not None
    )
    readings += (
        (rest[: at.start()], "config", rest[at.end() :])
        for at in re.finditer(r"\.config\.", rest)
        if rest[at.end() :]
    )
    known = [each for each in readings if each[0] in topics]
    if not known:
        topic = readings[-1][0]
        raise UsageProblem(f"--set {key}: there is no topic {topic!r} in the collections")
    if len(known) > 1:
        names = " or ".join(repr(each[0]) for each in known)
        raise UsageProblem(f"--set {key}: this may be about {names}; edit the plan instead")
    topic, what, detail = known[0]
    _set_of_topic(found.setdefault(topic, {}), key, value, what, detail)


def _set_of_topic(
    settings: dict[str, object], key: str, value: str, what: str, detail: str
) -> None:
    def add(name: str, item: object, to: object) -> None:
        items = settings.setdefault(name, {})
        assert isinstance(items, dict)
        items[item] = to

    match what:
        case "keep":
            settings["is_kept"] = _kept(key, value)
        case "id":
            if parse_uuid(value) is None or value in RESERVED_TOPIC_IDS:
                raise UsageProblem(f"--set {key}={value}: not a topic id")
            settings["topic_id"] = value
        case "partitions":
            settings["partitions"] = _number(key, value, _MOST_INT32, 1)
        case "config":
            add("configs", detail, value)
        case "leader":
            add("leaders", int(detail), _number(key, value, _MOST_INT32))
        case "leader_epoch":
            add("leader_epochs", int(detail), _number(key, value, _MOST_INT32))
        case _:
            add("replicas", int(detail), _nodes(key, value))


def _nodes(key: str, value: str) -> tuple[int, ...]:
    nodes = tuple(_number(key, each, _MOST_INT32) for each in value.split(","))
    if len(set(nodes)) < len(nodes):
        raise UsageProblem(f"--set {key}={value}: a node is in the list twice")
    return nodes
