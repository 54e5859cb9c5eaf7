"""Which topics a dead cluster had, with which ids, and how many partitions each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import UsageProblem
from kdump.formats.names import PartitionState, is_topic_name
from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import DiskReplica, Evidence, MetadataEvidence, place_of
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.overrides import Overrides, TopicOverrides
from kdump.state.metadata.cluster_plan import Source, SourceKind
from kdump.state.metadata.disk_collection import ClaimedPartition, TopicClaim
from kdump.state.metadata.metadata_entities import PartitionRegistration
from kdump.state.metadata.metadata_image import LOG_BEGIN, EntityKind, MetadataImage
from kdump.words import counted, first_of

MOST_PARTITIONS: Final = 1_000_000
"""A topic with more is taken for a forged or damaged collection."""

_LATER: Final = "it was created after the time of --to"


class TopicChoice(Struct, frozen=True):
    """A topic of the plan before its partitions are decided.

    Attributes:
        source: why it is in the plan.
        in_copy: its partitions in the chosen copy.
        in_old_copies: the registrations of a partition in other copies, likewise by number.
        replicas: the directories that count, by number.
        all_directories: of the same id in any state, by number: their epochs count.
        claims: what internal topics say of it, by number.
        count: of partitions.
        counted_by: why a number exists that neither copy nor disk has.
        named_by: the internal topics that name it.
    """

    name: str
    topic_id: str
    source: Source
    in_copy: Mapping[int, PartitionRegistration]
    in_old_copies: Mapping[int, Sequence[PartitionRegistration]]
    replicas: Mapping[int, Sequence[DiskReplica]]
    all_directories: Mapping[int, Sequence[DiskReplica]]
    claims: Mapping[int, Sequence[ClaimedPartition]]
    count: int
    counted_by: Source
    named_by: frozenset[str]


def topic_ids(image: MetadataImage) -> dict[str, str]:
    """The ids of an image's topics by name."""
    return {each.name: each.topic_id for each in image.of(EntityKind.TOPIC).values()}


def _partitions_by_topic(image: MetadataImage) -> dict[str, dict[int, PartitionRegistration]]:
    found: dict[str, dict[int, PartitionRegistration]] = defaultdict(dict)
    for (topic_id, number), registration in image.of(EntityKind.PARTITION).items():
        found[topic_id][number] = registration
    return found


class TopicChooser(Struct):
    """Chooses the topics of the plan.

    Attributes:
        copy: the copy that the plan starts with; None without one.
        copy_source: the source of what comes from it.
        assigns_directories: whether the planned metadata can name a replica's log directory.
        missing: the log directories that were not collected, by node.
    """

    evidence: Evidence
    copy: MetadataEvidence | None
    copy_source: Source
    overrides: Overrides
    notices: Notices
    assigns_directories: bool
    missing: Mapping[int, frozenset[str]]

    def choose(self) -> list[TopicChoice]:
        """The topics by name."""
        others = [each for each in self.evidence.copies if each is not self.copy]
        in_copy = {} if self.copy is None else topic_ids(self.copy.image)
        registered = {} if self.copy is None else _partitions_by_topic(self.copy.image)
        older = [(each, _partitions_by_topic(each.image)) for each in others]
        formerly = self._former_ids()
        found: list[TopicChoice] = []
        names: dict[str, str] = {}
        for name in sorted({*in_copy, *self.evidence.replicas}):
            directories = self.evidence.replicas.get(name, {})
            if not self._is_allowed(name, directories):
                continue
            chosen = self._id_of(name, in_copy.get(name), directories, formerly)
            if chosen is None:
                continue
            topic_id, source = chosen
            if names.setdefault(topic_id, name) != name:
                self._report_shared_id(name, topic_id, names[topic_id], directories)
                continue
            registrations = registered.get(topic_id, {})
            in_old_copies: dict[int, list[PartitionRegistration]] = defaultdict(list)
            for _, partitions in older:
                for number, each in partitions.get(topic_id, {}).items():
                    in_old_copies[number].append(each)
            claims = [
                each
                for each in self.evidence.claims.get(name, ())
                if each.topic_id in (None, topic_id)
            ]
            choice = TopicChoice(
                name,
                topic_id,
                source,
                registrations,
                in_old_copies,
                self._counting(name, topic_id, directories),
                _of_id(directories, topic_id),
                _by_number(claims),
                0,
                source,
                frozenset(each.source for each in claims),
            )
            found.append(self._with_count(choice))
        self._report_lost_topics({each.name for each in found}, formerly)
        return found

    def _former_ids(self) -> dict[str, str]:
        """Ids of topics that older copies have or that any copy says were deleted; and who."""
        found: dict[str, str] = {}
        end = LOG_BEGIN if self.copy is None else self.copy.end
        for copy in self.evidence.copies:
            # What a more advanced copy has is younger than the chosen one.
            if copy.end >= end:
                continue
            for topic_id in topic_ids(copy.image).values():
                found.setdefault(topic_id, f"the older copy of {place_of(copy.directory)} has it")
        for copy in self.evidence.all_copies:
            for removed in copy.metadata.removed_topics:
                word = "" if removed.is_committed else ", which may not be committed"
                found[removed.topic_id] = (
                    f"the copy of {place_of(copy.directory)} deletes it at offset"
                    f" {removed.offset}{word}"
                )
        if self.copy is not None:
            for topic_id in topic_ids(self.copy.image).values():
                found.pop(topic_id, None)
        return found | dict.fromkeys(self._later_ids({*found}), _LATER)

    def _later_ids(self, former: set[str]) -> set[str]:
        """The ids of topics that were created after the moment to which the metadata go back.

        Those that no copy knows are, too, if the chosen copy goes on after the moment.
        """
        found = {*self.evidence.later_topics}
        moment_ms, copy = self.evidence.moment_ms, self.copy
        if moment_ms is None or copy is None or (copy.metadata.timestamp_ms or 0) < moment_ms:
            return found
        known = former | {*topic_ids(copy.image).values()}
        on_disks = {
            each.partition.topic_id
            for numbers in self.evidence.replicas.values()
            for each in _every(numbers)
        }
        return found | {each for each in on_disks if each is not None and each not in known}

    def _is_allowed(self, name: str, directories: Mapping[int, Sequence[DiskReplica]]) -> bool:
        """Whether a topic can have this name; reports one that cannot."""
        if is_topic_name(name):
            return True
        self.notices.add(notice_codes.INVALID_NAME, _places(_every(directories)), name)
        return False

    def _report_shared_id(
        self,
        name: str,
        topic_id: str,
        other: str,
        directories: Mapping[int, Sequence[DiskReplica]],
    ) -> None:
        places = _places(_every(directories))
        self.notices.add(
            notice_codes.SHARED_ID,
            f"topic {other} has the id {topic_id}, too; {places} become -stray",
            name,
            override=f"topic.{other}=drop",
        )

    # --- ids

    def _id_of(
        self,
        name: str,
        copy_id: str | None,
        directories: Mapping[int, Sequence[DiskReplica]],
        formerly: Mapping[str, str],
    ) -> tuple[str, Source] | None:
        """The id of a topic and why it has it; None if the topic is not in the plan."""
        said = self.overrides.topic(name)
        by_id: dict[str | None, list[DiskReplica]] = defaultdict(list)
        for replicas in directories.values():
            for each in replicas:
                if self._counts(name, each):
                    by_id[each.partition.topic_id].append(each)
        if said.is_kept is False:
            self._drop_by_option(name, copy_id, by_id)
            return None
        ids = {each: by_id[each] for each in by_id if each is not None}
        chosen = self._decide_id(name, said, copy_id, ids, formerly)
        if chosen is None:
            self._report_left_out(name, copy_id, directories, by_id, formerly)
            return None
        self._report_other_ids(name, chosen[0], ids, formerly)
        self._report_without_id(name, by_id.get(None, ()))
        return chosen

    def _counts(self, name: str, replica: DiskReplica) -> bool:
        """Whether a directory counts as a partition of the cluster."""
        state = replica.partition.state
        is_kept = self.overrides.topic(name).is_kept
        if state is PartitionState.STRAY:
            return bool(is_kept or self.overrides.is_stray_kept)
        if state is PartitionState.DELETE:
            return bool(is_kept)
        if replica.is_future:
            return self.assigns_directories and replica.directory.directory_id is not None
        return state is PartitionState.LIVE

    def _decide_id(
        self,
        name: str,
        said: TopicOverrides,
        copy_id: str | None,
        ids: Mapping[str, list[DiskReplica]],
        formerly: Mapping[str, str],
    ) -> tuple[str, Source] | None:
        if said.topic_id is not None:
            return said.topic_id, Source(SourceKind.SET, "topic id")
        younger = [each for each in sorted(ids) if each not in formerly]
        if copy_id is not None:
            if copy_id in ids or len(younger) != 1:
                return copy_id, self.copy_source
            self.notices.add(
                notice_codes.RECREATED,
                f"the copy has the id {copy_id}, and all directories have {younger[0]}: it was"
                " probably deleted and created again after the end of the copy",
                name,
                override=f"topic.{name}.id={copy_id}",
            )
            return younger[0], ids[younger[0]][0].source
        is_kept = said.is_kept or self.overrides.is_deleted_kept
        candidates = younger or (sorted(ids) if is_kept else [])
        if not candidates:
            return None
        topic_id = max(candidates, key=lambda each: (*_weight(ids[each]), each))
        if self.copy is not None and younger and not said.is_kept:
            self.notices.add(
                notice_codes.YOUNGER,
                f"id {topic_id}, {counted(len(ids[topic_id]), 'directory', 'directories')}",
                name,
                override=f"topic.{name}=drop",
            )
        if not younger:
            return topic_id, Source(SourceKind.SET, "the topic is kept")
        return topic_id, ids[topic_id][0].source

    def _drop_by_option(
        self, name: str, copy_id: str | None, by_id: Mapping[str | None, Sequence[DiskReplica]]
    ) -> None:
        count = sum(map(len, by_id.values()))
        what = counted(count, "directory", "directories")
        ids = ", ".join(sorted({each for each in (copy_id, *by_id) if each is not None}))
        self.notices.add(
            notice_codes.DROPPED_BY_OPTION, f"id {ids or '?'}, {what} become -stray", name
        )

    def _report_left_out(
        self,
        name: str,
        copy_id: str | None,
        directories: Mapping[int, Sequence[DiskReplica]],
        by_id: Mapping[str | None, Sequence[DiskReplica]],
        formerly: Mapping[str, str],
    ) -> None:
        """Report a topic that is not in the plan although there are directories of it."""
        assert copy_id is None
        keep = f"topic.{name}=keep"
        ids = sorted(each for each in by_id if each is not None)
        if ids:
            size = _places(each for topic_id in ids for each in by_id[topic_id])
            is_later = all(formerly[each] == _LATER for each in ids)
            self.notices.add(
                notice_codes.LATER_TOPIC if is_later else notice_codes.DELETED_TOPIC,
                f"id {', '.join(ids)}: {formerly[ids[0]]}; {size}",
                name,
                override=keep,
            )
            return
        if by_id.get(None):
            self.notices.add(
                notice_codes.TOPIC_WITHOUT_ID,
                f"no directory has a partition.metadata: {_places(by_id[None])}",
                name,
                override=f"topic.{name}.id=ID",
            )
            return
        every = _every(directories)
        strays = [each for each in every if each.partition.state is PartitionState.STRAY]
        if strays:
            self.notices.add(
                notice_codes.STRAY_TOPIC,
                f"{_places(strays)}; restore them with kdump undelete before the brokers start",
                name,
                override="stray=keep",
            )
        elif futures := [each for each in every if each.is_future]:
            self.notices.add(
                notice_codes.STRAY_TOPIC,
                f"{_places(futures)}; rename them to TOPIC-PARTITION before the brokers start, and"
                " collect again",
                name,
            )
        elif every:
            self.notices.add(
                notice_codes.LEFTOVER,
                f"its topic was deleted, but not yet its files: {_places(every)}",
                name,
                override=keep,
            )

    def _report_other_ids(
        self,
        name: str,
        topic_id: str,
        ids: Mapping[str, list[DiskReplica]],
        formerly: Mapping[str, str],
    ) -> None:
        for other in sorted(ids):
            if other == topic_id:
                continue
            why = f" ({formerly[other]})" if other in formerly else ""
            self.notices.add(
                notice_codes.TWO_IDS,
                f"the plan has the id {topic_id}; the directories with the id {other}{why} become"
                f" -stray: {_places(ids[other])}",
                name,
                override=f"topic.{name}.id={other}",
            )

    def _report_without_id(self, name: str, replicas: Iterable[DiskReplica]) -> None:
        for each in replicas:
            self.notices.add(
                notice_codes.NO_PARTITION_METADATA,
                f"{place_of(each.directory)}: {each.partition.directory}",
                name,
                each.partition.partition,
            )

    # --- numbers

    def _counting(
        self, name: str, topic_id: str, directories: Mapping[int, Sequence[DiskReplica]]
    ) -> dict[int, list[DiskReplica]]:
        """The directories that a starting broker can use, by number.

        If the metadata assigns a replica to the log directory that has a ``-future`` directory of
        it, that becomes the log (``LogManager.recoverAbandonedFutureLogs``), and a log elsewhere is
        deleted. So it counts only where its node has no log; and, if a disk of the node may have
        one, only where no other node has.
        """

        def is_log(each: DiskReplica) -> bool:
            return not (each.is_future or each.becomes_stray)

        found = _where(_of_id(directories, topic_id), lambda each: self._counts(name, each))
        for number, replicas in found.items():
            with_log = {each.node_id for each in replicas if is_log(each)}
            without = {*self.missing} | with_log if with_log else set[int]()
            found[number] = [
                each for each in replicas if not (each.is_future and each.node_id in without)
            ]
        return found

    def _with_count(self, choice: TopicChoice) -> TopicChoice:
        known = {*choice.in_copy, *choice.in_old_copies, *choice.replicas}
        future = {
            number
            for number, replicas in choice.all_directories.items()
            if any(each.is_future for each in replicas)
        }
        known |= future
        claimed = set(choice.claims) - known
        highest = max(known, default=-1)
        in_a_copy = choice.in_copy or choice.in_old_copies
        is_known = bool(in_a_copy) and highest <= max(in_a_copy)
        source = choice.source
        count = highest + 1
        if claimed and not is_known:
            count = max(count, max(claimed) + 1)
            source = Source(SourceKind.CLAIM, self._claimants(choice.name))
        elif claimed and max(claimed) >= count:
            self.notices.add(
                notice_codes.CLAIMED_PARTITION,
                f"{self._claimants(choice.name)} names partition {max(claimed)}, but the copy has"
                f" only {count}",
                choice.name,
                override=f"topic.{choice.name}.partitions={max(claimed) + 1}",
            )
        if not is_known:
            self.notices.add(
                notice_codes.PARTITION_COUNT,
                f"{counted(count, 'partition')} or more",
                choice.name,
                override=f"topic.{choice.name}.partitions=N",
            )
        said = self.overrides.topic(choice.name).partitions
        if said is not None:
            source = Source(SourceKind.SET, "number of partitions")
            for number in sorted(each for each in known if each >= said):
                self.notices.add(
                    notice_codes.DROPPED_PARTITION,
                    f"the plan has {counted(said, 'partition')}",
                    choice.name,
                    number,
                )
            count = said
        if count > MOST_PARTITIONS:
            raise UsageProblem(
                f"topic {choice.name}: partition {count - 1} cannot be; set"
                f" topic.{choice.name}.partitions, or leave out the collection that has it"
            )
        return replace(choice, count=max(count, 1), counted_by=source)

    def _claimants(self, name: str) -> str:
        return ", ".join(sorted({each.source for each in self.evidence.claims.get(name, ())}))

    def _report_lost_topics(self, planned: set[str], formerly: Mapping[str, str]) -> None:
        """Report topics that only internal topics know."""
        gone = {
            removed.topic
            for copy in self.evidence.all_copies
            for removed in copy.metadata.removed_topics
        }
        for name, claims in self.evidence.claims.items():
            if name in planned or name in self.evidence.replicas or name in gone:
                continue
            if any(each.topic_id in formerly for each in claims if each.topic_id is not None):
                continue
            numbers = {each.partition for claim in claims for each in claim.partitions}
            self.notices.add(
                notice_codes.LOST_TOPIC,
                f"{self._claimants(name)} names"
                f" {counted(len(numbers), 'partition')}; no disk and no chosen copy has the topic",
                name,
            )


def _of_id(
    directories: Mapping[int, Sequence[DiskReplica]], topic_id: str
) -> dict[int, list[DiskReplica]]:
    return _where(directories, lambda each: each.partition.topic_id in (topic_id, None))


def _where(
    directories: Mapping[int, Sequence[DiskReplica]], counts: Callable[[DiskReplica], bool]
) -> dict[int, list[DiskReplica]]:
    """Those of some directories that count, by number; no number without any."""
    found = {number: [*filter(counts, directories[number])] for number in directories}
    return {number: replicas for number, replicas in found.items() if replicas}


def _every(directories: Mapping[int, Sequence[DiskReplica]]) -> list[DiskReplica]:
    return [each for replicas in directories.values() for each in replicas]


def _by_number(claims: Iterable[TopicClaim]) -> dict[int, list[ClaimedPartition]]:
    found: dict[int, list[ClaimedPartition]] = defaultdict(list)
    for claim in claims:
        for each in claim.partitions:
            found[each.partition].append(each)
    return found


def _weight(replicas: Sequence[DiskReplica]) -> tuple[int, int]:
    """How much there is of a topic: directories, then bytes."""
    return len(replicas), sum(each.partition.size_bytes or 0 for each in replicas)


_SHOWN_PLACES: Final = 3


def _places(replicas: Iterable[DiskReplica]) -> str:
    """Which directories these are: ``2 directories (node 1 /data/a-0, node 2 /data/a-0)``."""
    places = sorted(f"{place_of(each.directory)}/{each.partition.directory}" for each in replicas)
    shown = first_of(places, _SHOWN_PLACES)
    return f"{counted(len(places), 'directory', 'directories')} ({shown})"
