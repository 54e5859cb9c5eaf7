"""Repair a partition of Kafka 0.7.

Its offsets are positions in the stream of all bytes ever written, so a message cannot move without
changing its offset. After a dropped, damaged range a new file begins, named after the offset of
its first message.
"""

from __future__ import annotations

from collections.abc import Iterator

from kdump.broker.loader.load_report import (
    Cause,
    Dropped,
    LoadReport,
    LogCut,
    Loss,
    QuarantinedRange,
)
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.repair.policies import Policy
from kdump.repair.salvage.recovered_0_7 import Recovered07
from kdump.repair.salvage.salvage_files import quarantine_name
from kdump.scan.walk_0_7 import Skipped07, valid_messages
from kdump.target.target_file import CopiedFrom, Gone, Kept, KeptUpTo, TargetFile
from kdump.target.virtual_directory import RangeSource, VirtualDirectory


def repair_0_7(partition: Partition, policy: Policy = Policy.BROKER) -> Recovered07:
    """Compute the target state of a partition of Kafka 0.7; reads only.

    A broker checked every message of the newest segment, and truncated it at the first invalid
    one (``FileMessageSet.recover``); with an unknown magic it did not start. Truncating does the
    same to all segments, and deletes those after it. Salvage keeps all valid messages of all
    segments where they are.

    Args:
        partition: of Kafka 0.7.
        policy: what to do with damaged messages.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    segments = [segment for segment in partition.segments if segment.is_0_7]
    if policy is Policy.SALVAGE:
        return _salvage(partition, segments)
    files: dict[str, TargetFile] = {segment.log_name: Kept() for segment in segments}
    cuts: list[LogCut] = []
    dropped: list[Dropped] = []
    end_offset = segments[-1].base_offset + segments[-1].log_bytes if segments else 0
    for at, segment in enumerate(segments):
        if policy is Policy.BROKER and segment is not segments[-1]:
            continue
        cut = _cut(partition, segment)
        if cut is None:
            continue
        cuts.append(cut)
        files[segment.log_name] = KeptUpTo(cut.position)
        end_offset = segment.base_offset + cut.position
        for later in segments[at + 1 :]:
            files[later.log_name] = Gone()
            loss = _loss(partition, later, 0)
            dropped.append(Dropped(later.log_name, "it follows the truncated bytes", loss))
        break
    return Recovered07(files, end_offset, _report(cuts, dropped))


def _cut(partition: Partition, segment: Segment) -> LogCut | None:
    """The truncation at the first invalid message of a segment; None if all are valid."""
    with (partition.path / segment.log_name).open_file() as source:
        for step in valid_messages(source):
            if isinstance(step, Skipped07):
                loss = _loss(partition, segment, step.start)
                return LogCut(segment.log_name, step.start, str(step.problem), loss)
    return None


def _loss(partition: Partition, segment: Segment, start: int) -> Loss:
    """What is lost with the bytes of a segment from ``start`` on."""
    messages = valid_bytes = 0
    first_offset: int | None = None
    last_offset: int | None = None
    with (partition.path / segment.log_name).open_file() as source:
        rest = RangeSource(source, start, source.size_bytes - start)
        for step in valid_messages(rest):
            if isinstance(step, Skipped07):
                continue
            messages += 1
            valid_bytes += step.size_bytes
            offset = segment.base_offset + start + step.position
            first_offset = offset if first_offset is None else first_offset
            last_offset = offset
    size_bytes = segment.log_bytes - start
    return Loss(size_bytes, messages, messages, first_offset, last_offset, size_bytes - valid_bytes)


def _salvage(partition: Partition, segments: list[Segment]) -> Recovered07:
    directory = VirtualDirectory(partition.path)
    files: dict[str, TargetFile] = {}
    quarantined: list[QuarantinedRange] = []
    end_offset = 0
    for segment in segments:
        name = segment.log_name
        digits = len(name.partition(".")[0])
        kept, lost = _ranges(partition, segment)
        files[name] = Kept() if not lost else KeptUpTo(0)
        for start, end in kept:
            end_offset = segment.base_offset + end
            if not start:
                files[name] = KeptUpTo(end) if lost else Kept()
            else:
                files[f"{segment.base_offset + start:0{digits}d}.kafka"] = CopiedFrom(
                    name, start, end
                )
        for each in lost:
            content = CopiedFrom(name, each.start, each.end)
            file = None
            if directory.end_of_data(content):
                file = quarantine_name(directory, f"{segment.base_offset:020d}.kafka", content)
                files[file] = CopiedFrom(name, each.start, each.end)
            quarantined.append(
                QuarantinedRange(
                    name=name,
                    start=each.start,
                    end=each.end,
                    file=file,
                    cause=Cause.DAMAGED,
                    reason=str(each.problem),
                    first_offset=segment.base_offset + each.start,
                    last_offset=segment.base_offset + each.end - 1,
                    records=None,
                )
            )
    return Recovered07(files, end_offset, _report([], [], quarantined))


def _ranges(
    partition: Partition, segment: Segment
) -> tuple[list[tuple[int, int]], list[Skipped07]]:
    """The ranges of consecutive valid messages, and the damaged ranges between them."""
    kept: list[tuple[int, int]] = []
    lost: list[Skipped07] = []
    for start, end, skipped in _runs(partition, segment):
        if skipped is not None:
            lost.append(skipped)
        else:
            kept.append((start, end))
    return kept, lost


def _runs(partition: Partition, segment: Segment) -> Iterator[tuple[int, int, Skipped07 | None]]:
    start = end = 0
    with (partition.path / segment.log_name).open_file() as source:
        for step in valid_messages(source):
            if not isinstance(step, Skipped07):
                end = step.position + step.size_bytes
                continue
            if start < end:
                yield start, end, None
            yield step.start, step.end, step
            start = end = step.end
    if start < end:
        yield start, end, None


def _report(
    cuts: list[LogCut], dropped: list[Dropped], quarantined: list[QuarantinedRange] | None = None
) -> LoadReport:
    return LoadReport(
        tuple(cuts), tuple(dropped), (), (), (), (), quarantined=tuple(quarantined or ())
    )
