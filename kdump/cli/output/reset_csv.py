"""Committed offsets as ``kafka-consumer-groups --reset-offsets --from-file`` reads them.

A line is ``topic,partition,offset``, after the name of the group if there are several. The tool
splits the file at line feeds and gives each line to Jackson's CSV reader (``CsvUtils``): fields may
be in double quotes, which are doubled within them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kdump.cli.output.events import write_notice
from kdump.cli.output.groups_summary import missing_lines

if TYPE_CHECKING:
    from kdump.jobs.groups.group_report import GroupReport, GroupsReport, OffsetReport

_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")


def write_reset_csv(report: GroupsReport) -> None:
    """Write the committed offsets; what is left out is said on standard error."""
    groups = [each for each in report.groups if any(_is_movable(o) for o in each.offsets)]
    for each in groups:
        for offset in each.offsets:
            if _is_movable(offset):
                committed = offset.offsets.committed
                assert committed is not None
                fields = [_field(offset.partition.topic), str(offset.partition.partition)]
                fields += [str(committed.offset)]
                if len(groups) > 1:
                    fields.insert(0, _field(each.group.group_id))
                if any("\n" in field for field in fields):
                    continue
                sys.stdout.write(",".join(fields) + "\n")
    sys.stdout.flush()
    for line in _left_out(report):
        write_notice(line)


def _field(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _is_movable(report: OffsetReport) -> bool:
    committed = report.offsets.committed
    is_current = report.topic_state not in ("recreated", "unlisted")
    return committed is not None and committed.offset >= 0 and is_current


def _left_out(report: GroupsReport) -> Iterator[str]:
    for each in report.groups:
        name = each.group.group_id
        if "\n" in name:
            yield f"group {name}: left out, its name has a line feed"
            continue
        yield from _left_out_of(name, each)
    for unknown in report.unknown:
        yield f"group {unknown}: unknown, {report.offsets_topic.why_missing(unknown)}"
    if report.offsets_topic.missing_count or not report.offsets_topic.count:
        yield from missing_lines("__consumer_offsets", report.offsets_topic, "groups")


def _left_out_of(name: str, each: GroupReport) -> Iterator[str]:
    for offset in each.offsets:
        where = f"group {name}, {offset.partition}"
        if offset.offsets.pending:
            yield f"{where}: an offset in an open transaction is left out"
        if offset.offsets.unreadable_offset is not None:
            yield f"{where}: left out, its last record cannot be decoded"
        elif offset.topic_state == "recreated":
            yield f"{where}: left out, it was committed for an earlier topic of this name"
        elif offset.topic_state == "unlisted":
            yield f"{where}: left out, the cluster has no such topic"
        elif offset.is_uncertain:
            yield f"{where}: a later commit may be in damaged bytes"
        for other in offset.elsewhere:
            path = other.replica.log_directory.path
            yield f"{where}: not {other.committed.offset}, which only the replica in {path} has"
    if each.share_offsets:
        yield f"group {name}: left out, the tool does not reset share groups"
