"""What people must know of a plan: one code for each kind of thing, and its title on the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from kdump.state.metadata.cluster_plan import Notice, NoticeKind

_KINDS: Final = list(NoticeKind)


class NoticeCode(Struct, frozen=True):
    """A kind of thing that people must know.

    Attributes:
        title: of all notices with this code.
        needs_acceptance: whether a plan with one is refused without ``--accept-loss``: some disk
            has what the plan drops.
        for_all: the ``--set`` that decides otherwise for all of them; empty without one.
    """

    kind: NoticeKind
    code: str
    title: str
    needs_acceptance: bool = False
    for_all: str = ""


CODES: Final[dict[str, NoticeCode]] = {}


def _notice(kind: NoticeKind, code: str, title: str) -> NoticeCode:
    CODES[code] = NoticeCode(kind, code, title)
    return CODES[code]


def _refusal(kind: NoticeKind, code: str, title: str, for_all: str = "") -> NoticeCode:
    """A code of notices that refuse a plan without ``--accept-loss``."""
    CODES[code] = NoticeCode(kind, code, title, needs_acceptance=True, for_all=for_all)
    return CODES[code]


_LOSS, _CONTRADICTION = NoticeKind.LOSS, NoticeKind.CONTRADICTION
_WARNING, _GUESS = NoticeKind.WARNING, NoticeKind.GUESS

DELETED_TOPIC: Final = _refusal(
    _LOSS,
    "deleted-topic",
    "topics that a copy says were deleted, and that disks still have",
    for_all="deleted=keep",
)
STRAY_TOPIC: Final = _refusal(
    _LOSS, "stray-topic", "topics that only -stray and -future directories have"
)
STRAY_PARTITION: Final = _refusal(
    _LOSS, "stray-partition", "records that only -stray directories have"
)
DELETED_REPLICA: Final = _refusal(
    _LOSS,
    "deleted-replica",
    "records that only -delete and -future directories have, which a broker removes",
)
DROPPED_PARTITION: Final = _refusal(
    _LOSS, "dropped-partition", "partitions beyond the number that was set"
)
TOPIC_WITHOUT_ID: Final = _refusal(_LOSS, "topic-without-id", "topics whose id nothing says")
INVALID_NAME: Final = _refusal(_LOSS, "invalid-name", "topics that Kafka does not allow")
OLD_COPY_ONLY: Final = _refusal(
    _LOSS,
    "old-copy-only",
    "things that another copy of the metadata has, and the chosen one has not",
)
LEVEL_LOSS: Final = _refusal(
    _LOSS, "metadata-version-loss", "things that records of the planned metadata.version cannot say"
)
LOST_AT_START: Final = _refusal(
    _LOSS,
    "lost-at-start",
    "records that a starting broker drops or does not load, and that no replica has",
)
FUTURE_ONLY: Final = _refusal(
    _LOSS,
    "future-only",
    "partitions led by a -future directory: a copy that may not have been finished",
)
DAMAGED_LEADER: Final = _refusal(
    _LOSS,
    "damaged-leader",
    "partitions whose leader lacks records that a follower has: consumers do not get them",
)
UNKNOWN_RECORDS: Final = _refusal(
    _LOSS, "unknown-records", "what the copy of the metadata says, and this kdump does not know"
)
DAMAGED_COPY: Final = _refusal(
    _LOSS, "damaged-copy", "records of the metadata after damage in a copy: the plan lacks them"
)
NO_COPY: Final = _notice(_LOSS, "no-copy", "gone for good: no copy of the metadata was collected")
NO_DATA: Final = _notice(_LOSS, "no-data", "partitions that no collected disk has")
HOLE: Final = _notice(_LOSS, "hole", "missing numbers between a topic's partitions")
LOST_TOPIC: Final = _notice(
    _LOSS, "lost-topic", "topics that internal topics name, and that no disk has"
)
LATER_TOPIC: Final = _notice(
    _LOSS,
    "later-topic",
    "topics that were created after the time of --to: their directories become -stray",
)
DROPPED_BY_OPTION: Final = _notice(_LOSS, "dropped-by-option", "topics dropped by --set")

SHARED_ID: Final = _refusal(_CONTRADICTION, "shared-id", "topics with the id of another topic")
TWO_IDS: Final = _refusal(_CONTRADICTION, "two-ids", "topics with several ids")
RECREATED: Final = _refusal(
    _CONTRADICTION, "recreated-topic", "topics that have another id on disk than in the copy"
)
PARTED: Final = _refusal(
    _CONTRADICTION, "parted", "partitions whose replicas parted: the loser truncates"
)
OFFSETS_AGAIN: Final = _refusal(
    _CONTRADICTION,
    "offsets-again",
    "partitions whose leader gives offsets out again: consumers past them skip new records",
)
EXTRA_REPLICA: Final = _notice(
    _CONTRADICTION, "extra-replica", "directories on nodes that are not replicas in the copy"
)
DUPLICATE_REPLICA: Final = _notice(
    _CONTRADICTION, "duplicate-replica", "partitions in several log directories of one node"
)

REWOUND: Final = _notice(
    _WARNING, "rewound", "the metadata is as it was at the time of --to, and drops what is later"
)
LATER_PARTITION: Final = _notice(
    _WARNING,
    "later-partition",
    "partitions that were added after the time of --to, and that no disk has: they start empty",
)
LATE_COPY: Final = _notice(
    _WARNING,
    "late-copy",
    "copies of the metadata that do not say what it was at the time of --to: they do not count",
)
MOVE_ASIDE: Final = _notice(
    _WARNING, "move-aside", "nodes whose copy of the metadata must be moved aside"
)
START_ORDER: Final = _notice(
    _WARNING, "start-order", "partitions with unclean leader election: the leader must start first"
)
UNCLEAN_OFF: Final = _notice(
    _WARNING, "unclean-switched-off", "topics whose unclean leader election is switched off"
)
UNCOMMITTED: Final = _notice(
    _WARNING, "uncommitted-end", "ends of copies that may never have been committed"
)
NOT_COLLECTED: Final = _notice(
    _WARNING, "node-not-collected", "registered brokers whose disks were not collected"
)
DISK_NOT_COLLECTED: Final = _notice(
    _WARNING, "disk-not-collected", "log directories of a broker that were not collected"
)
ISR_NOT_COLLECTED: Final = _refusal(
    _LOSS, "isr-not-collected", "partitions whose in-sync replicas were not collected"
)
ISR_BEHIND: Final = _refusal(
    _LOSS,
    "isr-behind",
    "partitions whose in-sync replicas end before another: their disks may be of an earlier time",
)
BROKER_AS_CONTROLLER: Final = _refusal(
    _CONTRADICTION, "controller-is-broker", "controllers with the id of a broker"
)
CLONED_DISK: Final = _refusal(
    _LOSS,
    "cloned-directory-id",
    "log directories with the id of another: a broker does not start with both",
)
BEHIND_COMMITTED: Final = _notice(
    _WARNING, "behind-claims", "partitions that end before an offset that a group committed"
)
CLAIMED_PARTITION: Final = _notice(
    _WARNING, "claimed-partition", "partition numbers that only internal topics name"
)
NO_PARTITION_METADATA: Final = _notice(
    _WARNING,
    "no-partition-metadata",
    "directories without a topic id: a starting broker makes them -stray",
)
UNREADABLE: Final = _notice(_WARNING, "unreadable", "damage that kdump metadata collect found")
DAMAGED_FOLLOWER: Final = _notice(
    _WARNING,
    "damaged-follower",
    "damaged replicas that stay damaged: a follower fetches only what is after its own end",
)
UNCLEAN_SHUTDOWN: Final = _notice(
    _WARNING, "unclean-shutdown", "log directories after an unclean shutdown"
)
LEFTOVER: Final = _notice(
    _WARNING, "leftover-directories", "-stray and -delete directories that do not change"
)
IGNORED: Final = _notice(_WARNING, "ignored", "collections that were not used")

UNKNOWN_CONFIG: Final = _notice(
    _GUESS, "unknown-config", "topics whose configuration is unknown: nothing is deleted from them"
)
INTERNAL_CONFIG: Final = _notice(
    _GUESS, "internal-config", "internal topics with the configuration that brokers give them"
)
PARTITION_COUNT: Final = _notice(
    _GUESS, "partition-count", "topics whose number of partitions is only a lower bound"
)
FEATURES: Final = _notice(_GUESS, "features", "levels of features")
YOUNGER: Final = _notice(
    _GUESS, "younger-than-copy", "topics that disks have and no copy knows: taken as younger"
)


class Notices(Struct):
    """The notices of a plan while it is made."""

    found: list[Notice] = field(default_factory=list)

    def add(
        self,
        code: NoticeCode,
        what: str,
        topic: str | None = None,
        partition: int | None = None,
        override: str | None = None,
    ) -> None:
        self.found.append(
            Notice(code.kind, code.code, topic, partition, what, code.needs_acceptance, override)
        )

    def in_order(self) -> tuple[Notice, ...]:
        """All of them: by kind, code, topic and partition."""
        return tuple(sorted(self.found, key=_order))


def _order(notice: Notice) -> tuple[object, ...]:
    partition = -1 if notice.partition is None else notice.partition
    codes = list(CODES)
    return (
        _KINDS.index(notice.kind),
        codes.index(notice.code),
        notice.topic or "",
        partition,
        notice.what,
    )


def unaccepted(notices: Iterable[Notice]) -> list[Notice]:
    """The notices that refuse a plan without ``--accept-loss``."""
    return [each for each in notices if each.needs_acceptance]
