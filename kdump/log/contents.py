"""What kinds of batches a partition's segments hold: found by going over all of their headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kdump.formats import kafka07, record_batch
from kdump.formats.compression import CODEC_MASK, Codec
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.log.partition import Partition
from kdump.log.problems import Problem
from kdump.scan.batches import BatchColumns, StopReason, read_windows
from kdump.scan.source import ByteSource, FileSource, read_at

FORMAT_0_7: Final = "Kafka 0.7"
_UNKNOWN_CODEC: Final = "unknown"


@dataclass(frozen=True, slots=True)
class LogContents:
    """What was counted; a message of magic 0 or 1, or of Kafka 0.7, counts as a batch.

    Attributes:
        batches: how many.
        records: in batches of magic 2, and messages that wrap none; None where messages wrap
            others, of which the headers do not say how many.
        formats: batches by format, ``magic 0`` to ``magic 2`` and ``Kafka 0.7``.
        codecs: batches by codec, as Kafka names them.
        producer_ids: of all idempotent and transactional producers.
        transactional_batches: how many, markers among them.
        control_batches: how many, for transactions and otherwise.
    """

    batches: int = 0
    records: int | None = 0
    formats: Mapping[str, int] = field(default_factory=dict)
    codecs: Mapping[str, int] = field(default_factory=dict)
    producer_ids: frozenset[int] = frozenset()
    transactional_batches: int = 0
    control_batches: int = 0


def merged(parts: Iterable[LogContents]) -> LogContents:
    """The contents of several logs, or parts of one, together."""
    batches = transactional = control = 0
    records: int | None = 0
    formats, codecs = Counter[str](), Counter[str]()
    producer_ids: set[int] = set()
    for part in parts:
        batches += part.batches
        records = None if records is None or part.records is None else records + part.records
        formats.update(part.formats)
        codecs.update(part.codecs)
        producer_ids |= part.producer_ids
        transactional += part.transactional_batches
        control += part.control_batches
    return LogContents(
        batches,
        records,
        dict(sorted(formats.items())),
        dict(sorted(codecs.items())),
        frozenset(producer_ids),
        transactional,
        control,
    )


def survey_partition(partition: Partition) -> tuple[LogContents, list[Problem]]:
    """Go over the batch headers of all segments of a partition.

    Returns:
        What is in them, and where a segment's batches end before its file does. Zeroes at the
        end of the last segment are no problem: that is how a preallocated log looks.
    """
    parts: list[LogContents] = []
    problems: list[Problem] = []
    for segment in partition.segments:
        path = partition.segment_path(segment, segment.log_kind)
        is_active = segment is partition.segments[-1]
        try:
            with FileSource(path) as source:
                for found in _survey(source, segment.log_kind, may_be_padded=is_active):
                    if isinstance(found, FormatError):
                        problems.append(Problem(path, found))
                    else:
                        parts.append(found)
        except OSError as failure:
            problems.append(Problem(path, failure))
    return merged(parts), problems


def _survey(
    source: ByteSource, kind: FileKind, *, may_be_padded: bool
) -> Iterator[LogContents | FormatError]:
    if kind is FileKind.LOG_0_7:
        yield from _survey_0_7(source, may_be_padded=may_be_padded)
        return
    for window in read_windows(source, checksums=False):
        yield _contents(window.batches)
        stop = window.stop
        if stop and stop.problem and not (may_be_padded and stop.reason is StopReason.ZERO_FILL):
            yield stop.problem


def _contents(batches: BatchColumns) -> LogContents:
    is_legacy = batches.magic < 2
    codec_ids = batches.attributes & record_batch.CODEC_MASK
    wraps = bool((is_legacy & (codec_ids != Codec.NONE)).any())
    flags = np.where(is_legacy, 0, batches.attributes)
    return LogContents(
        batches=batches.count,
        records=None if wraps else int(np.where(is_legacy, 1, batches.records_count).sum()),
        formats={f"magic {magic}": n for magic, n in _counts(batches.magic)},
        codecs=_named_codecs(_counts(codec_ids)),
        producer_ids=frozenset(batches.producer_id[batches.producer_id >= 0].tolist()),
        transactional_batches=int(((flags & record_batch.TRANSACTIONAL_FLAG) != 0).sum()),
        control_batches=int(((flags & record_batch.CONTROL_FLAG) != 0).sum()),
    )


def _counts(column: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterable[tuple[int, int]]:
    values, counts = np.unique(column, return_counts=True)
    return zip(values.tolist(), counts.tolist(), strict=True)


def _named_codecs(counts: Iterable[tuple[int, int]]) -> Counter[str]:
    named = Counter[str]()
    for codec_id, count in counts:
        try:
            named[Codec.of_attributes(codec_id).label] += count
        except FormatError:
            named[_UNKNOWN_CODEC] += count
    return named


def _survey_0_7(source: ByteSource, *, may_be_padded: bool) -> Iterator[LogContents | FormatError]:
    position = batches = 0
    codecs = Counter[int]()
    while True:
        # The size, and then what it claims to be, as far as the file goes.
        size = int.from_bytes(
            read_at(source, position, kafka07.LOG_OVERHEAD_BYTES), "big", signed=True
        )
        entry = read_at(source, position, kafka07.LOG_OVERHEAD_BYTES + max(size, 0))
        found = kafka07.decode_entry(entry)
        if isinstance(found, kafka07.Stop):
            break
        batches += 1
        codecs[found.attributes & CODEC_MASK] += 1
        position += len(entry)
    yield LogContents(
        batches=batches,
        records=batches if codecs[Codec.NONE] == batches else None,
        formats={FORMAT_0_7: batches} if batches else {},
        codecs=_named_codecs(codecs.items()),
    )
    is_padding = found.reason is kafka07.StopReason.ZERO_FILL and may_be_padded
    if found.problem is not None and not is_padding:
        yield found.problem.shifted(position)
