"""The groups that the disk knows, read when a client first asks for any."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from msgspec import Struct

from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.formats.names import TopicPartition
from kdump.jobs.groups.build_report import report_groups
from kdump.jobs.groups.group_report import GroupReport, GroupsReport, GroupsRequest
from kdump.log.selection import PartitionSelection
from kdump.serve.served_cluster import ServedCluster
from kdump.serve.served_notices import ServedNotices
from kdump.state.groups.group_image import CommittedOffset
from kdump.state.metadata.cluster import cluster_view
from kdump.state.metadata.settings import DEFAULT_OFFSETS_RETENTION_MS

IN_THIS_PROCESS: Final = EngineOptions(choice=EngineChoice.LOCAL, processes=1)
"""A server has threads, which a worker process would not have."""


class FoundGroups(Struct, frozen=True):
    """The groups by name, and what is missing.

    Attributes:
        report: as ``kdump groups`` has it.
    """

    report: GroupsReport
    groups: Mapping[str, GroupReport]

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """What a group has committed; offsets of open transactions are none.

        No coordinator lives to commit them: the transactions end by their timeouts, as aborted.
        """
        found = self.groups.get(group_id)
        return {
            each.partition: each.offsets.committed
            for each in (() if found is None else found.offsets)
            if each.offsets.committed is not None
        }


@dataclass
class DiskGroups:
    """Reads the groups once.

    Attributes:
        notices: takes what is damaged or missing.
    """

    cluster: ServedCluster
    notices: ServedNotices
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def found(self) -> FoundGroups:
        """The groups.

        Raises:
            KdumpError: they cannot be read.
        """
        with self._lock:
            return self._found

    @cached_property
    def _found(self) -> FoundGroups:
        image = self.cluster.image
        request = GroupsRequest(
            directories=self.cluster.directories,
            image=None if image is None else cluster_view(image),
            groups=(),
            selection=PartitionSelection(),
            offsets_retention_ms=DEFAULT_OFFSETS_RETENTION_MS,
        )
        report = report_groups(request, IN_THIS_PROCESS)
        for problem in report.problems():
            self.notices.note(str(problem))
        return FoundGroups(report, {each.group.group_id: each for each in report.groups})

    def note_use(self, group_id: str, found: FoundGroups) -> None:
        """Say what a client should know that reads the offsets of a group."""
        if found.report.offsets_topic.is_missing(group_id):
            why = found.report.offsets_topic.why_missing(group_id)
            self.notices.note(f"group {group_id}: begins without offsets: {why}")
        group = found.groups.get(group_id)
        if group is not None and any(each.is_uncertain for each in group.offsets):
            self.notices.note(f"group {group_id}: later offsets may be in damaged bytes")
