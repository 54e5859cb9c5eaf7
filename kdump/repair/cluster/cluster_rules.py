"""The plan for a dead cluster's metadata: the freshest copy, and the disks where it says nothing.

Each rule answers something that was seen to go wrong when controllers are replaced. The new
metadata begins with a snapshot and no log (``KafkaRaftLog.truncateToLatestSnapshot``), at an offset
and epoch above those of every copy, so that brokers with old copies fetch the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import UsageProblem
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.formats.feature_levels import (
    HIGHEST_METADATA_VERSION,
    LOWEST_METADATA_VERSION,
    METADATA_VERSIONS,
)
from kdump.formats.uuids import format_uuid
from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.config_choice import UNCLEAN_ELECTION, ConfigPlanner
from kdump.repair.cluster.evidence import (
    Evidence,
    MetadataEvidence,
    gather,
    missing_disks,
    place_of,
)
from kdump.repair.cluster.feature_choice import choose_features
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.old_copies import report_old_copies
from kdump.repair.cluster.overrides import (
    NO_COPY,
    Overrides,
    cluster_id_of,
    parse_overrides,
)
from kdump.repair.cluster.partition_choice import (
    MOST_EPOCH,
    PartitionPlanner,
    with_remote_records,
    without_natural_gaps,
)
from kdump.repair.cluster.surroundings import report_surroundings
from kdump.repair.cluster.topic_choice import TopicChooser, topic_ids
from kdump.repair.cluster.unclean_elections import settle_unclean_elections
from kdump.repair.rebuild.controller_snapshot import (
    MARGIN_EPOCHS,
    MARGIN_OFFSETS,
    MARGIN_PRODUCER_IDS,
)
from kdump.repair.rebuild.new_voters import require_distinct
from kdump.repair.rebuild.node_directories import derived_directory_id
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    FirstLeader,
    MovedAside,
    PlannedController,
    PlannedRecord,
    PlannedTopic,
    ResourceConfig,
    SeenOnDisks,
    SeenPartition,
    Source,
    SourceKind,
)
from kdump.state.metadata.collected_image import image_of_records
from kdump.state.metadata.config_keys import is_true
from kdump.state.metadata.disk_collection import DiskCollection
from kdump.state.metadata.image_records import DIRECTORY_ASSIGNMENT, ImageLoss, records_of
from kdump.state.metadata.metadata_image import (
    METADATA_VERSION,
    EntityKind,
    LogEnd,
    resource_of,
)

PRODUCER_ID_BLOCK: Final = 1000
"""``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``."""
DEFAULT_LISTENER: Final = "CONTROLLER"
_MOST_OFFSET: Final = 2**63 - 1
_KRAFT_VERSION_1_LEVEL: Final = 21
"""The level of metadata.version (3.9-IV0) from which on a cluster can have dynamic voters."""


class PlanRequest(Struct, frozen=True):
    """What a plan is made of.

    Attributes:
        collections: of all hosts, in any order.
        controllers: of the new quorum.
        settings: of ``--set``.
        is_loss_accepted: ``--accept-loss``.
    """

    collections: Sequence[DiskCollection]
    controllers: Sequence[DynamicVoter]
    settings: Sequence[tuple[str, str]] = ()
    is_loss_accepted: bool = False


def plan_cluster(request: PlanRequest) -> ClusterPlan:
    """Make a plan. Whether it can be used without ``--accept-loss`` is in its notices.

    Raises:
        UsageProblem: the collections, the controllers or ``--set`` cannot be used together.
        DocumentError: the records of a copy cannot be used.
    """
    if not request.controllers:
        raise UsageProblem("name at least one controller with --controller ID@HOST:PORT")
    require_distinct(request.controllers)
    evidence = gather(request.collections, cluster_id_of(request.settings))
    names = {*evidence.replicas, *(n for copy in evidence.copies for n in topic_ids(copy.image))}
    overrides = parse_overrides(request.settings, names)
    return _Planner(
        request, evidence, overrides, Notices(), _chosen_copy(evidence, overrides)
    ).plan()


def _chosen_copy(evidence: Evidence, overrides: Overrides) -> MetadataEvidence | None:
    """The copy that the plan starts with: the most advanced one, or that of ``copy=``."""
    if overrides.copy is None:
        if evidence.moment_ms is not None and not evidence.copies:
            late = "; ".join(f"{place_of(e.directory)}: {e.problem}" for e in evidence.late_copies)
            raise UsageProblem(
                "no copy of the metadata says what it was at the time of --to"
                + (f" ({late})" if late else "")
                + "; collect on the other nodes, too, or give another time"
            )
        return evidence.copies[0] if evidence.copies else None
    if overrides.copy == NO_COPY:
        return None
    for copy in evidence.copies:
        node_id = str(copy.directory.node_id)
        if overrides.copy in (node_id, f"{node_id}:{copy.directory.path}"):
            return copy
    places = ", ".join(place_of(each.directory) for each in evidence.copies) or "none"
    raise UsageProblem(f"--set copy={overrides.copy}: the copies are those of {places}")


class _Planner(Struct, frozen=True):
    """Makes one plan."""

    request: PlanRequest
    evidence: Evidence
    overrides: Overrides
    notices: Notices
    copy: MetadataEvidence | None

    @property
    def copy_source(self) -> Source:
        if self.copy is None:
            return Source(SourceKind.GUESS, "no copy of the metadata")
        return Source(SourceKind.COPY, place_of(self.copy.directory))

    def plan(self) -> ClusterPlan:
        cluster_id = self.evidence.cluster_id
        if cluster_id is None:
            raise UsageProblem(
                "no collection says which cluster it is of; name it with --set cluster.id=ID"
            )
        features = choose_features(
            self.evidence, self.copy, self.copy_source, self.overrides, self.notices
        )
        level = next(each.level for each in features if each.name == METADATA_VERSION)
        topics, first_leaders, partitions = self._topics(level >= DIRECTORY_ASSIGNMENT)
        kraft_version, kraft_source = self._kraft_version(level)
        seen = self._seen(partitions)
        offset, epoch = self._above_all_copies(seen)
        producer_id = self._next_producer_id(seen.highest_producer_id)
        self._report_brokers_as_controllers()
        move_aside = self._move_aside()
        if self.copy is None:
            self._report_lost_with_copies()
        elif self.copy.metadata.rewound is not None:
            self.notices.add(
                notice_codes.REWOUND,
                "topics, configurations, ACLs, quotas, credentials and delegation tokens; replicas,"
                " nodes and features are those of now",
            )
        known = set() if self.copy is None else {*topic_ids(self.copy.image)}
        of_copy = {each.name for each in topics} & known
        report_old_copies(self.evidence, self.copy, of_copy, self.notices)
        report_surroundings(self.evidence, self.copy, topics, self.notices)
        said = self.overrides
        plan = ClusterPlan(
            kdump=self.evidence.kdump,
            created_ms=self.evidence.created_ms,
            cluster_id=cluster_id,
            snapshot_offset=offset,
            snapshot_epoch=epoch,
            kraft_version=kraft_version,
            controller_listener=said.controller_listener or self._listener(),
            controllers=self._controllers(f"{cluster_id} {offset} {epoch}", kraft_version),
            next_producer_id=producer_id,
            sources={
                "cluster_id": _set_or(said.cluster_id, SourceKind.DISK, "meta.properties"),
                "snapshot_offset": _set_or(
                    said.snapshot_offset, SourceKind.RULE, "above all copies"
                ),
                "snapshot_epoch": _set_or(said.snapshot_epoch, SourceKind.RULE, "above all copies"),
                "kraft_version": kraft_source,
                "next_producer_id": _set_or(
                    said.next_producer_id, SourceKind.RULE, "above all on the disks"
                ),
            },
            features=features,
            topics=topics,
            configs=self._configs(),
            brokers=self._kept("REGISTER_BROKER_RECORD"),
            acls=self._kept("ACCESS_CONTROL_ENTRY_RECORD"),
            scram=self._kept("USER_SCRAM_CREDENTIAL_RECORD"),
            quotas=self._kept("CLIENT_QUOTA_RECORD"),
            delegation_tokens=self._kept("DELEGATION_TOKEN_RECORD"),
            move_aside=move_aside,
            first_leaders=first_leaders,
            is_loss_accepted=self.request.is_loss_accepted,
            seen=seen,
            moment_ms=None if self.copy is None else self.evidence.moment_ms,
        )
        self._report_what_cannot_be_written(plan)
        return replace(plan, notices=self.notices.in_order())

    def _report_what_cannot_be_written(self, plan: ClusterPlan) -> None:
        """Write the plan as records once: what its metadata.version cannot hold is a loss.

        Directories are not: brokers report them when they register.
        """

        def report(loss: ImageLoss) -> None:
            if loss.is_lost:
                self.notices.add(notice_codes.LEVEL_LOSS, loss.value)

        image = image_of_records(
            plan.records(), LogEnd(plan.snapshot_epoch, plan.snapshot_offset), "the plan's records"
        )
        level = image.of(EntityKind.FEATURE).get(METADATA_VERSION, 0)
        if level not in METADATA_VERSIONS:
            raise UsageProblem(
                f"{METADATA_VERSION} {level} is unknown: this kdump writes"
                f" {LOWEST_METADATA_VERSION} to {HIGHEST_METADATA_VERSION}; use a kdump that knows"
                f" it, or decide with --set feature.{METADATA_VERSION}="
                f"{max(min(level, HIGHEST_METADATA_VERSION), LOWEST_METADATA_VERSION)}"
            )
        try:
            for record in records_of(image, on_loss=report):
                record.encode()
        except ValueError as error:
            raise UsageProblem(f"the plan cannot be written as records: {error}") from error

    # --- topics

    def _topics(
        self, assigns_directories: bool
    ) -> tuple[tuple[PlannedTopic, ...], tuple[FirstLeader, ...], Sequence[SeenPartition]]:
        missing = missing_disks(self.evidence, self.copy)
        chooser = TopicChooser(
            self.evidence,
            self.copy,
            self.copy_source,
            self.overrides,
            self.notices,
            assigns_directories,
            missing,
        )
        choices = chooser.choose()
        partitions = PartitionPlanner(
            self.evidence,
            self.copy_source,
            self.overrides,
            self.notices,
            missing,
        )
        in_copy = self._copied_configs()
        configs = ConfigPlanner(
            {key.removeprefix("topic:"): in_copy[key] for key in in_copy if key[:6] == "topic:"},
            self.copy_source,
            [each for each in self.evidence.copies if each is not self.copy],
            self.overrides,
            self.notices,
        )
        topics = []
        known = {}
        for each in choices:
            planned = configs.plan(each)
            known[each.name] = with_remote_records(without_natural_gaps(each, planned), planned)
            plans = partitions.plan(known[each.name])
            topics.append(PlannedTopic(each.name, each.topic_id, each.source, planned, plans))
        by_default = in_copy.get("broker:", {}).get(UNCLEAN_ELECTION, "false")
        settled, first_leaders = settle_unclean_elections(
            topics,
            known,
            is_true(by_default),
            self.overrides,
            self.notices,
        )
        return tuple(settled), first_leaders, partitions.seen

    def _copied_configs(self) -> Mapping[str, Mapping[str, str]]:
        return {} if self.copy is None else self.copy.image.of(EntityKind.CONFIG)

    def _configs(self) -> tuple[ResourceConfig, ...]:
        found = []
        for key, values in self._copied_configs().items():
            resource_type, name = resource_of(key)
            if not key.startswith("topic:"):
                found += [
                    ResourceConfig(resource_type, name, each, values[each], self.copy_source)
                    for each in values
                ]
        return tuple(sorted(found, key=lambda e: (e.resource_type, e.resource_name, e.name)))

    # --- what a copy has and disks have not

    def _kept(self, record_type: str) -> tuple[PlannedRecord, ...]:
        """The records of a type; registered brokers are fenced until they register again."""
        if self.copy is None:
            return ()
        fenced = {"fenced": True, "inControlledShutdown": False}
        found = []
        for each in self.copy.metadata.records:
            if each.type == record_type:
                data = dict(each.data)
                data |= {name: fenced[name] for name in fenced if name in data}
                found.append(PlannedRecord(each.type, each.version, data, self.copy_source))
        return tuple(found)

    def _report_lost_with_copies(self) -> None:
        for what in (
            "ACLs",
            "SCRAM credentials",
            "client quotas",
            "delegation tokens",
            "configurations of brokers and topics",
            "the order of replicas",
            "deleted topics: what is on a disk counts as alive",
        ):
            self.notices.add(notice_codes.NO_COPY, what)

    # --- numbers above all others

    def _seen(self, partitions: Sequence[SeenPartition]) -> SeenOnDisks:
        """The highest numbers of all disks, and what they have of the partitions.

        Broker epochs are offsets of the metadata log, too: they are in the markers of a clean stop.
        """
        offsets, epochs, ids = [0], [0], [-1]
        for copy in self.evidence.all_copies:
            offsets += (each.epoch for each in copy.image.of(EntityKind.BROKER).values())
            ids += (each - 1 for each in copy.image.of(EntityKind.NEXT_PRODUCER_ID).values())
        for directory in self.evidence.directories:
            offsets.append(directory.broker_epoch or 0)
            if directory.metadata is not None:
                offsets += [directory.metadata.end_offset, directory.metadata.highest_offset]
                epochs += [directory.metadata.epoch, directory.metadata.highest_epoch]
            own = [directory.highest_transactional_producer_id]
            own += (each.highest_producer_id for each in directory.partitions)
            ids += (each for each in own if each is not None)
        clusters = {each.cluster_id for each in self.evidence.directories} - {None}
        return SeenOnDisks(
            min(filter(None, clusters), default=None),
            max(offsets),
            max(epochs),
            max(ids),
            tuple(partitions),
        )

    def _above_all_copies(self, seen: SeenOnDisks) -> tuple[int, int]:
        """Offset and epoch of the snapshot."""
        said = self.overrides
        highest = seen.highest_offset, seen.highest_epoch
        offset = _number_above("snapshot.offset", highest[0], MARGIN_OFFSETS, said.snapshot_offset)
        epoch = _number_above("snapshot.epoch", highest[1], MARGIN_EPOCHS, said.snapshot_epoch)
        # The first leader adds one to the epoch.
        if offset > _MOST_OFFSET - MARGIN_OFFSETS or epoch >= MOST_EPOCH:
            raise UsageProblem(
                f"there is no room above the offset {highest[0]} and the epoch {highest[1]} of"
                " the copies; leave out the collection that has them, if it is damage"
            )
        return offset, epoch

    def _next_producer_id(self, highest: int) -> int:
        said = self.overrides.next_producer_id
        if said is not None and said <= highest:
            raise UsageProblem(
                f"--set next.producer.id={said}: there is a producer id {highest} on the disks"
            )
        block = highest // PRODUCER_ID_BLOCK + 1
        number = block * PRODUCER_ID_BLOCK + MARGIN_PRODUCER_IDS if said is None else said
        if number > _MOST_OFFSET - PRODUCER_ID_BLOCK:
            raise UsageProblem(
                f"there is no room above the producer id {highest}; leave out the collection"
                " that has it, if it is damage"
            )
        return number

    # --- controllers

    def _report_brokers_as_controllers(self) -> None:
        """Report controllers with the id of a broker that was not a combined node."""
        brokers = {each.node_id for each in self.evidence.directories if each.partitions}
        voters: set[int] = set()
        for copy in self.evidence.all_copies:
            brokers.update(copy.image.of(EntityKind.BROKER))
            voters.update(each.node_id for each in copy.metadata.voters)
        for controller in self.request.controllers:
            if controller.node_id in brokers - voters:
                self.notices.add(
                    notice_codes.BROKER_AS_CONTROLLER,
                    f"node {controller.node_id}: its broker does not start beside this controller;"
                    " name another id with --controller, unless the node becomes both",
                )

    def _kraft_version(self, level: int) -> tuple[int, Source]:
        said = self.overrides.kraft_version
        named = [each for each in self.request.controllers if each.directory_id is not None]
        if said is not None:
            version, source = said, Source(SourceKind.SET, "kraft.version")
        elif named:
            version, source = 1, Source(SourceKind.SET, "--controller has directory ids")
        elif self.copy is not None:
            version, source = self.copy.metadata.kraft_version, self.copy_source
        elif level < _KRAFT_VERSION_1_LEVEL:
            version, source = 0, Source(SourceKind.RULE, f"{METADATA_VERSION} {level}")
        else:
            version, source = 1, Source(SourceKind.GUESS, "no copy of the metadata")
        if version == 1 and level < _KRAFT_VERSION_1_LEVEL:
            raise UsageProblem(
                f"kraft.version 1 needs {METADATA_VERSION} {_KRAFT_VERSION_1_LEVEL} or above, and"
                f" the plan has {level}; leave out the directory ids of --controller"
            )
        return version, source

    def _controllers(self, snapshot: str, kraft_version: int) -> tuple[PlannedController, ...]:
        found = []
        for each in sorted(self.request.controllers, key=lambda each: each.node_id):
            directory_id = None if each.directory_id is None else format_uuid(each.directory_id)
            if directory_id is None and kraft_version:
                directory_id = format_uuid(derived_directory_id(f"{snapshot} {each.node_id}"))
            found.append(PlannedController(each.node_id, each.host, each.port, directory_id))
        return tuple(found)

    def _listener(self) -> str:
        """The name of the controllers' listener: that of the former voters."""
        names = {
            endpoint.partition("://")[0]
            for copy in self.evidence.all_copies[:1]
            for voter in copy.metadata.voters
            for endpoint in voter.endpoints
        }
        return min(names) if len(names) == 1 else DEFAULT_LISTENER

    def _move_aside(self) -> tuple[MovedAside, ...]:
        """Copies of nodes that would elect themselves, or wait for dead voters.

        A node whose old log names it a voter takes part in the old quorum, although it is only a
        broker now (``KafkaRaftClient.initialize``).
        """
        planned = {each.node_id for each in self.request.controllers}
        found = []
        for copy in sorted(self.evidence.all_copies, key=lambda each: place_of(each.directory)):
            directory, node_id = copy.directory, copy.directory.node_id
            is_voter = any(
                voter.node_id == node_id and voter.directory_id in (None, directory.directory_id)
                for voter in copy.metadata.voters
            )
            if node_id is None or not is_voter or node_id in planned:
                continue
            why = "its copy names the node a voter, and it is not a controller of the plan"
            found.append(MovedAside(node_id, directory.path, directory.directory_id, why))
            self.notices.add(
                notice_codes.MOVE_ASIDE,
                f"{place_of(directory)}: {why}; if the node starts again, run kdump metadata apply"
                " on the directory first",
            )
        return tuple(found)


def _number_above(key: str, highest: int, margin: int, said: int | None) -> int:
    if said is None:
        return highest + margin
    if said <= highest:
        raise UsageProblem(f"--set {key}={said}: a copy has {highest} already")
    return said


def _set_or(said: object, kind: SourceKind, detail: str) -> Source:
    return Source(kind, detail) if said is None else Source(SourceKind.SET, "an option")
