"""Count what kinds of batches a partition has, by reading all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, field

from kdump.formats import kafka07, record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.log.batch_validity import LogPart
from kdump.log.living_windows import log_windows
from kdump.log.problems import FileProblem
from kdump.log.segment import Segment
from kdump.log.valid_windows import segment_part
from kdump.scan.batches import BatchColumns, Window
from kdump.scan.control_batches import is_control, is_transactional
from kdump.scan.source import read_at
from kdump.storage.location import Location

FORMAT_0_7: Final = "Kafka 0.7"
_UNKNOWN_CODEC: Final = "unknown"


class LogContents(Struct, frozen=True):
    """The counts; a message of magic 0 or 1, or of Kafka 0.7, counts as a batch.

    Attributes:
        batches: how many.
        records: in batches of magic 2, and messages that wrap none; None where messages wrap
            others: headers do not say how many.
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
    """Add up the contents of several logs, or of parts of one."""
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


def survey_segment(
    path: Location, segment: Segment, following: Segment | None
) -> tuple[LogContents, list[FileProblem]]:
    """Read and verify the batches of a segment.

    Args:
        following: the next segment; None for the last.

    Returns:
        The contents of the valid batches, and the damage. Zeroes at the end of the last segment
        are preallocated space, not damage.
    """
    parts: list[LogContents] = []
    problems: list[FileProblem] = []
    survey = (
        _survey_0_7(path, may_be_padded=following is None)
        if segment.is_0_7
        else _survey(path, segment_part(segment, following))
    )
    try:
        for found in survey:
            if isinstance(found, FormatError):
                problems.append(FileProblem(path, found))
            else:
                parts.append(found)
    except OSError as failure:
        problems.append(FileProblem(path, failure))
    return merged(parts), problems


def _survey(path: Location, part: LogPart) -> Iterator[LogContents | FormatError]:
    damaged_to = None
    for step in log_windows(path, part):
        if isinstance(step, Window):
            yield _contents(step.batches)
            continue
        is_more = step.start == damaged_to
        damaged_to = step.end
        if is_more:
            continue  # adjacent damage is one problem
        if isinstance(step.problem, FormatError):
            yield step.problem
        else:
            yield FormatError(f"a batch is damaged: {step.problem}", position=step.start)


def _contents(batches: BatchColumns) -> LogContents:
    return LogContents(
        batches=batches.count,
        records=None if batches.is_compressed_set.any() else int(batches.counts.sum()),
        formats={f"magic {magic}": n for magic, n in _counts(batches.magic)},
        codecs=_named_codecs(_counts(batches.attributes & record_batch.CODEC_MASK)),
        producer_ids=frozenset(batches.producer_id[batches.producer_id >= 0].tolist()),
        transactional_batches=int(is_transactional(batches).sum()),
        control_batches=int(is_control(batches).sum()),
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


def _survey_0_7(path: Location, *, may_be_padded: bool) -> Iterator[LogContents | FormatError]:
    position = batches = 0
    codecs = Counter[int]()
    with path.open_file() as source:
        while True:
            # Read the size, then as many bytes, up to the end of the file.
            size = int.from_bytes(
                read_at(source, position, kafka07.LOG_OVERHEAD_BYTES), "big", signed=True
            )
            entry = read_at(source, position, kafka07.LOG_OVERHEAD_BYTES + max(size, 0))
            found = kafka07.decode_entry(entry)
            if isinstance(found, kafka07.Stop07):
                break
            batches += 1
            codecs[found.attributes & record_batch.CODEC_MASK] += 1
            position += len(entry)
    yield LogContents(
        batches=batches,
        records=batches if codecs[Codec.NONE] == batches else None,
        formats={FORMAT_0_7: batches} if batches else {},
        codecs=_named_codecs(codecs.items()),
    )
    is_padding = found.reason is kafka07.StopReason07.ZERO_FILL and may_be_padded
    if found.problem is not None and not is_padding:
        yield found.problem.shifted(position)
