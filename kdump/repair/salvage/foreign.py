"""Find the batches in the logs of a partition that belong to another log.

A segment that was copied in, under its own name or over another segment, has valid batches, and no
batch says which partition it belongs to. So each run of batches is compared with everything else
that is known: the names of the logs, the runs before and after it, the offset indexes, the leader
epoch checkpoint, the producer snapshots, and the sequence numbers of producers. Each contradiction
is a doubt. If runs have different batches at the same offsets, the run with fewer doubts stays. If
the doubts are about equal, the report says that this was not decided. The same applies to repeated
sequence numbers, unless both runs fit in every other way: a producer may start again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.valid_batches import ValidBatches
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_SEQUENCE, increment_sequence
from kdump.repair.salvage.log_runs import LogRun, SequenceSpan, find_runs, repeats
from kdump.repair.salvage.side_files import SideFiles

_OUTSIDE: Final = 8
_INDEX_LIES: Final = 4
_CONTRADICTED: Final = 3
"""Contradicted by the leader epoch checkpoint or a producer snapshot."""
_LIKELY: Final = 2
_HINT: Final = 1
_LITTLE: Final = 2
"""If the doubts of two runs differ by no more, it is not known which of them is foreign."""
_CERTAIN: Final = 3
"""With fewer doubts, sequence numbers alone do not make a run foreign."""


def suspect_logs(
    logs: Mapping[int, ValidBatches], spans: Mapping[int, Mapping[int, SequenceSpan]]
) -> set[int]:
    """Find the logs that need :func:`find_foreign`, by base offset.

    Those are the logs with offsets that go back, overlap another log or another log's name, or
    leave a gap, and those that repeat sequence numbers of another log.
    """
    bases = sorted(logs)
    following = dict(itertools.zip_longest(bases, bases[1:], fillvalue=2**63))
    suspects: set[int] = set()
    reaches = []
    for base, batches in logs.items():
        if batches.count:
            first, last = int(batches.first_offset.min()), int(batches.last_offset.max())
            reaches.append((first, last, base))
            rises = bool((batches.first_offset[1:] > batches.last_offset[:-1]).all())
            if first < base or last >= following[base] or not rises:
                suspects.add(base)
    reach, of_reach = -1, -1
    writers: dict[int, tuple[int, SequenceSpan]] = {}
    for first, last, base in sorted(reaches):
        for producer_id, span in spans[base].items():
            before = writers.get(producer_id)
            if before is not None and repeats(before[1], span):
                suspects |= {base, before[0]}
            writers[producer_id] = base, span
        if first <= reach:
            suspects |= {base, of_reach}
        elif first > max(base, reach + 1):
            suspects.add(base)
        if last > reach:
            reach, of_reach = last, base
    return suspects


def find_foreign(
    logs: Mapping[int, ValidBatches],
    spans: Mapping[int, Mapping[int, SequenceSpan]],
    side_files: SideFiles,
) -> Mapping[int, Mapping[int, Cause]]:
    """Find the batches that belong to another log or are there twice.

    Args:
        logs: the batches of each log, by base offset; those of suspect logs are not collapsed.
        spans: the producers of each log, used for collapsed logs.
        side_files: the files beside the logs.

    Returns:
        Why each batch is dropped, by base offset and number of the batch.

    Raises:
        OSError: a file cannot be read.
    """
    runs = sorted(find_runs(logs, spans), key=lambda run: (run.first, run.base_offset))
    _place_doubts(runs, sorted(logs))
    for run in runs:
        _file_doubts(run, logs[run.base_offset], side_files)
    _neighbour_doubts(runs)
    _join_doubts(runs)
    kept = _without_repeats(_without_conflicts(runs, logs))
    foreign: dict[int, dict[int, Cause]] = {}
    for run in runs:
        if run not in kept:
            rows = range(run.rows.start, run.rows.stop)
            foreign.setdefault(run.base_offset, {}).update(dict.fromkeys(rows, run.cause))
    return foreign


def _place_doubts(runs: list[LogRun], bases: list[int]) -> None:
    """Add doubts by the names of logs and the offsets of the runs before and after."""
    firsts, lasts = {run.first for run in runs}, {run.last for run in runs}
    lowest, highest = min(firsts), max(lasts)
    crossed = {
        base
        for run in runs
        if run.continues
        for base in bases
        if run.base_offset < base <= run.first
    }
    for run in runs:
        if run.is_outside:
            run.doubt(_OUTSIDE, contradicts=False)
        at = bisect_right(bases, run.first)
        reaches_past = at < len(bases) and run.last >= bases[at]
        if run.base_offset in crossed or reaches_past:
            run.doubt(_LIKELY, contradicts=False)
        elif run.continues:
            run.doubt(_HINT, contradicts=False)
        if run.first != lowest and run.first - 1 not in lasts:
            run.doubt(_HINT, contradicts=False)
        if run.last != highest and run.last + 1 not in firsts and run.last + 1 not in bases:
            run.doubt(_HINT, contradicts=False)


def _file_doubts(run: LogRun, batches: ValidBatches, side_files: SideFiles) -> None:
    """Add doubts, and remove some, by the files beside the logs."""
    if side_files.contradicts_epochs(run, batches):
        run.doubt(_CONTRADICTED)
    agreement = side_files.index_agreement(run, batches)
    if agreement is not None:
        if not agreement:
            run.doubt(_INDEX_LIES, contradicts=False)
            run.is_replaced = True
            run.is_misplaced = run.first > run.base_offset
        elif run.continues:
            run.doubts -= _LIKELY
    elif side_files.has_indexes:
        run.doubt(_HINT, contradicts=False)
    before = side_files.snapshot(run.first)
    if before is not None:
        agreed = [
            _follows(entry, run.spans[pid]) for pid, entry in before.items() if pid in run.spans
        ]
        if agreed and not all(agreed):
            run.doubt(_CONTRADICTED)
        elif agreed or run.first == run.base_offset:
            run.doubts -= _CONTRADICTED  # a broker began a segment here
    elif run.first == run.base_offset and side_files.has_snapshots:
        run.doubt(_HINT, contradicts=False)
    after = side_files.snapshot(run.last + 1)
    if after is not None:
        agreed = [
            pid in run.spans and run.spans[pid].last_sequence == entry.last_sequence
            for pid, entry in after.items()
            if run.first <= entry.last_offset <= run.last and entry.last_sequence >= 0
        ]
        agreed += [pid in after for pid in run.spans]
        if agreed and not all(agreed):
            run.doubt(_CONTRADICTED)
        elif agreed:
            run.doubts -= _CONTRADICTED
    run.is_replaced &= run.is_contradicted


def _follows(entry: ProducerEntry, span: SequenceSpan) -> bool:
    """Whether a producer's sequence continues from a snapshot; a new epoch may begin anywhere."""
    return (
        entry.epoch != span.first_epoch
        or entry.last_sequence == NO_SEQUENCE
        or increment_sequence(entry.last_sequence, 1) == span.first_sequence
    )


def _neighbour_doubts(runs: list[LogRun]) -> None:
    """Add doubts, and remove some, by sequence numbers in the runs before and after."""
    wrote = {(producer_id, run.base_offset) for run in runs for producer_id in run.spans}
    writers = Counter(producer_id for producer_id, _ in wrote)
    for run in runs:
        has_others = len(writers) > len(run.spans)
        run.is_strange = (
            has_others
            and bool(run.spans)
            and all(writers[producer_id] == 1 for producer_id in run.spans)
        )
        for earlier in (True, False):
            agreed = []
            for producer_id in run.spans:
                other = _neighbour(runs, run, producer_id, earlier=earlier)
                if other is not None:
                    pair = (other, run) if earlier else (run, other)
                    agreed.append(_continues(*pair, producer_id))
            known = [each for each in agreed if each is not None]
            if known and not all(known):
                run.doubt(_LIKELY)
            elif known:
                run.doubts -= _LIKELY


def _neighbour(
    runs: list[LogRun], run: LogRun, producer_id: int, *, earlier: bool
) -> LogRun | None:
    """Find the nearest run wholly before or after ``run`` that has a producer's batches."""
    if earlier:
        found = [each for each in runs if each.last < run.first and producer_id in each.spans]
        return max(found, key=lambda each: each.last, default=None)
    found = [each for each in runs if each.first > run.last and producer_id in each.spans]
    return min(found, key=lambda each: each.first, default=None)


def _continues(earlier: LogRun, later: LogRun, producer_id: int) -> bool | None:
    """Whether a producer's sequence continues from one run to another; None for a new epoch."""
    before, after = earlier.spans[producer_id], later.spans[producer_id]
    if before.last_epoch != after.first_epoch:
        return None
    return increment_sequence(before.last_sequence, 1) == after.first_sequence


def _join_doubts(runs: list[LogRun]) -> None:
    """Give runs that continue each other past the name of a log the same doubts and weight."""
    chains: list[list[LogRun]] = []
    for run in sorted(runs, key=lambda each: each.place):
        if run.continues:
            chains[-1].append(run)
        else:
            chains.append([run])
    for chain in chains:
        doubts = sum(run.doubts for run in chain) / len(chain)
        weight = sum(run.batches for run in chain)
        for run in chain:
            run.doubts, run.weight = doubts, weight


def _without_conflicts(runs: list[LogRun], logs: Mapping[int, ValidBatches]) -> list[LogRun]:
    """Keep one of the runs that have different batches at the same offsets: the least doubtful."""
    kept: list[LogRun] = []
    for run in sorted(runs, key=lambda run: (run.doubts, -run.weight, run.first)):
        is_out_of_place = (run.is_outside and run.is_contradicted) or (
            (run.is_misplaced or run.is_replaced) and run.is_strange
        )
        if is_out_of_place and not run.is_alone:
            continue
        against = [] if run.is_alone else [each for each in kept if _conflict(run, each, logs)]
        if against:
            run.is_undecided = _is_close(run, against)
        else:
            kept.append(run)
    return sorted(kept, key=lambda run: (run.first, run.base_offset))


def _is_close(run: LogRun, others: list[LogRun]) -> bool:
    """Whether a dropped run has hardly more doubts than one that is kept instead."""
    return any(run.doubts - other.doubts <= _LITTLE for other in others)


def _conflict(run: LogRun, other: LogRun, logs: Mapping[int, ValidBatches]) -> bool:
    """Whether two runs have different batches at the same offsets, or all of ``run`` is a copy."""
    if not run.overlaps(other) or other.is_alone:
        return False
    mine = _identities(run, other, logs[run.base_offset])
    if not mine <= _identities(other, run, logs[other.base_offset]):
        return True
    run.is_twice = len(mine) == run.rows.stop - run.rows.start
    return run.is_twice


def _identities(run: LogRun, other: LogRun, batches: ValidBatches) -> set[tuple[int, int, int]]:
    """First offset, last offset and checksum of the batches of a run that overlap another run."""
    first, last = batches.first_offset[run.rows], batches.last_offset[run.rows]
    within = (first <= other.last) & (last >= other.first)
    columns = (first[within], last[within], batches.crc[run.rows][within])
    return set(zip(*(column.tolist() for column in columns), strict=True))


def _without_repeats(runs: list[LogRun]) -> list[LogRun]:
    """Keep one of the runs that repeat sequence numbers of a producer."""
    kept = list(runs)
    while True:
        blamed = next(_blamed(kept), None)
        if blamed is None:
            return kept
        kept.remove(blamed)


def _blamed(runs: list[LogRun]) -> Iterator[LogRun]:
    """The more doubtful of each two runs with the same sequence numbers of a producer."""
    for later in runs:
        for producer_id in later.spans:
            earlier = _neighbour(runs, later, producer_id, earlier=True)
            if earlier is None or earlier.base_offset == later.base_offset:
                continue
            if not repeats(earlier.spans[producer_id], later.spans[producer_id]):
                continue
            worse = max(later, earlier, key=lambda run: (run.doubts, -run.weight))
            if worse.doubts >= _CERTAIN or earlier.last + 1 != later.first:
                yield worse
