"""Which batches in the logs of a partition are those of another log.

A segment that was copied in, under its own name or over another one, holds valid batches, and
nothing in a batch says which partition it belongs to. Runs of batches (in a file, with rising
offsets, between two names) are therefore held against what else is known: the names of the logs,
the runs before and after, the offset indexes, the leader epoch checkpoint, the producer snapshots
and the sequences of producers. Each contradiction is a doubt. Where runs have different batches
at the same offsets, the one with fewer doubts stays; where they have about as many, the report
says that it was not decided. So it is where a producer's sequence comes
twice, unless both runs fit in every other way: a producer may begin again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.valid_batches import ValidBatches
from kdump.formats import names, offset_index, producer_snapshot
from kdump.formats.checkpoints import EpochEntry, decode_leader_epoch_checkpoint
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_SEQUENCE, increment_sequence
from kdump.target.virtual_directory import VirtualDirectory, file_name

_OUTSIDE: Final = 8
_INDEX_LIES: Final = 4
_CONTRADICTED: Final = 3
"""By the leader epoch checkpoint or a producer snapshot."""
_LIKELY: Final = 2
_HINT: Final = 1
_LITTLE: Final = 2
"""With no greater difference of doubts it is as good as not known which of two runs is foreign."""
_CERTAIN: Final = 3
"""With fewer doubts, a run is not taken for foreign because of sequences alone."""
_MOST_GAPS: Final = 1000
"""In a log with more of them, it is compaction that left them."""
_UNINDEXED_BYTES: Final = 64 << 10
"""More bytes without an entry are not usual: the default interval is 4096."""


@dataclass(frozen=True, slots=True)
class SequenceSpan:
    """What one producer wrote in a run: its first and last epoch and sequence."""

    first_epoch: int
    first_sequence: int
    last_epoch: int
    last_sequence: int


def sequence_spans(batches: ValidBatches, rows: slice) -> dict[int, SequenceSpan]:
    """The spans of all producers in some batches, by producer id."""
    ids = batches.producer_id[rows]
    numbered = np.flatnonzero((ids >= 0) & (batches.base_sequence[rows] >= 0))
    if not numbered.size:
        return {}
    found, first = np.unique(ids[numbered], return_index=True)
    _, last = np.unique(ids[numbered][::-1], return_index=True)
    spans = {}
    for producer_id, begin, end in zip(found.tolist(), first.tolist(), last.tolist(), strict=True):
        head, tail = numbered[begin], numbered[::-1][end]
        spans[producer_id] = SequenceSpan(
            int(batches.producer_epoch[rows][head]),
            int(batches.base_sequence[rows][head]),
            int(batches.producer_epoch[rows][tail]),
            int(batches.last_sequence[rows][tail]),
        )
    return spans


@dataclass(slots=True, eq=False)
class _Run:
    """Batches of one log in a row.

    Attributes:
        base_offset: from the name of the log.
        rows: their numbers.
        first: their first offset.
        last: their last offset.
        batches: how many.
        spans: of producers.
        is_outside: whether the log's name rules their offsets out.
        continues: whether it goes on from the run before it in the file, past another log's name.
        is_alone: whether it is one batch that fits to none beside it in the file, nor to the file's
            name: a batch with a wrong offset, rather than one of another log.
        weight: how many batches the runs have that go on from each other in the file.
        is_twice: whether another run has all its batches.
        is_undecided: whether it goes although it might as well have stayed, and another gone.
        doubts: how much speaks against it.
        is_contradicted: whether anything but its place does.
        is_misplaced: whether offsets are missing before it, and the index of its log is about
            other batches.
        is_replaced: whether the index of its log is about other batches, and the leader epochs or a
            producer snapshot are, too.
        is_strange: whether no other log of the partition knows any of its producers.
    """

    base_offset: int
    rows: slice
    first: int
    last: int
    batches: int
    spans: Mapping[int, SequenceSpan]
    is_outside: bool
    continues: bool
    is_alone: bool = False
    is_twice: bool = False
    is_undecided: bool = False
    weight: int = 0
    doubts: float = 0
    is_contradicted: bool = False
    is_misplaced: bool = False
    is_replaced: bool = False
    is_strange: bool = False

    def doubt(self, weight: int, *, contradicts: bool = True) -> None:
        self.doubts += weight
        self.is_contradicted |= contradicts

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands: its log, and its first batch there."""
        return self.base_offset, self.rows.start

    @property
    def cause(self) -> Cause:
        """Why the run goes, if it does."""
        if self.is_twice:
            return Cause.DUPLICATE
        return Cause.UNDECIDED if self.is_undecided else Cause.FOREIGN

    def overlaps(self, other: _Run) -> bool:
        return self.first <= other.last and other.first <= self.last


def suspect_logs(
    logs: Mapping[int, ValidBatches], spans: Mapping[int, Mapping[int, SequenceSpan]]
) -> set[int]:
    """Base offsets of the logs that overlap themselves, others, names or others' sequences."""
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
            if before is not None and _repeats(before[1], span):
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
    directory: VirtualDirectory,
) -> Mapping[int, Mapping[int, Cause]]:
    """The batches that belong to another log, or are there twice: why they go, by log and number.

    Args:
        logs: the batches of each; one that overlaps others is not collapsed.
        spans: of the producers of each log, for those that are collapsed.
        directory: has the files that tell more.

    Raises:
        OSError: one cannot be read.
    """
    runs = sorted(_runs(logs, spans), key=lambda run: (run.first, run.base_offset))
    evidence = _Evidence(directory)
    _place_doubts(runs, sorted(logs))
    for run in runs:
        _file_doubts(run, logs[run.base_offset], evidence)
    _neighbour_doubts(runs)
    _join_doubts(runs)
    kept = _without_repeats(_without_conflicts(runs, logs))
    foreign: dict[int, dict[int, Cause]] = {}
    for run in runs:
        if run not in kept:
            rows = range(run.rows.start, run.rows.stop)
            foreign.setdefault(run.base_offset, {}).update(dict.fromkeys(rows, run.cause))
    return foreign


def _runs(
    logs: Mapping[int, ValidBatches], spans: Mapping[int, Mapping[int, SequenceSpan]]
) -> Iterator[_Run]:
    bases = np.array(sorted(logs), np.int64)
    for base, batches in logs.items():
        if not batches.count:
            continue
        first, last = batches.first_offset, batches.last_offset
        names_below = np.searchsorted(bases, first, side="right")
        breaks = (first[1:] <= last[:-1]) | (names_below[1:] != names_below[:-1])
        has_gap = first[1:] > last[:-1] + 1
        if np.count_nonzero(has_gap) <= _MOST_GAPS:
            breaks |= has_gap
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), batches.count]
        own = int(np.searchsorted(bases, base, side="right"))
        found: list[_Run] = []
        for begin, end in itertools.pairwise(edges):
            rows = slice(begin, end)
            touches = bool(found) and int(first[begin]) == found[-1].last + 1
            continues = touches and not found[-1].is_outside
            is_inside = int(names_below[begin]) == own
            is_named = begin == 0 and int(first[begin]) == base
            run = _Run(
                base,
                rows,
                int(first[begin]),
                int(last[end - 1]),
                int(batches.batches[rows].sum()),
                spans[base] if batches.is_collapsed else sequence_spans(batches, rows),
                is_outside=(touches and found[-1].is_outside) or not (is_inside or continues),
                continues=not is_inside and continues,
                is_alone=end - begin == 1 and len(edges) > 2 and not touches and not is_named,
            )
            if touches:
                found[-1].is_alone = False
            found.append(run)
        yield from found


def _place_doubts(runs: list[_Run], bases: list[int]) -> None:
    """Names, and the runs before and after."""
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


def _file_doubts(run: _Run, batches: ValidBatches, evidence: _Evidence) -> None:
    """The files beside the logs."""
    if evidence.contradicts_epochs(run, batches):
        run.doubt(_CONTRADICTED)
    agreement = evidence.index_agreement(run, batches)
    if agreement is not None:
        if not agreement:
            run.doubt(_INDEX_LIES, contradicts=False)
            run.is_replaced = True
            run.is_misplaced = run.first > run.base_offset
        elif run.continues:
            run.doubts -= _LIKELY
    elif evidence.has_indexes:
        run.doubt(_HINT, contradicts=False)
    before = evidence.snapshot(run.first)
    if before is not None:
        agreed = [
            _follows(entry, run.spans[pid]) for pid, entry in before.items() if pid in run.spans
        ]
        if agreed and not all(agreed):
            run.doubt(_CONTRADICTED)
        elif agreed or run.first == run.base_offset:
            run.doubts -= _CONTRADICTED  # a broker began a segment here
    elif run.first == run.base_offset and evidence.has_snapshots:
        run.doubt(_HINT, contradicts=False)
    after = evidence.snapshot(run.last + 1)
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
    return (
        entry.epoch != span.first_epoch
        or entry.last_sequence == NO_SEQUENCE
        or increment_sequence(entry.last_sequence, 1) == span.first_sequence
    )


def _neighbour_doubts(runs: list[_Run]) -> None:
    """The sequences of producers in the runs before and after."""
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
                    agreed.append(_goes_on(*pair, producer_id))
            known = [each for each in agreed if each is not None]
            if known and not all(known):
                run.doubt(_LIKELY)
            elif known:
                run.doubts -= _LIKELY


def _neighbour(runs: list[_Run], run: _Run, producer_id: int, *, earlier: bool) -> _Run | None:
    """The nearest run that lies wholly before or after ``run`` and has a producer's batches."""
    if earlier:
        found = [each for each in runs if each.last < run.first and producer_id in each.spans]
        return max(found, key=lambda each: each.last, default=None)
    found = [each for each in runs if each.first > run.last and producer_id in each.spans]
    return min(found, key=lambda each: each.first, default=None)


def _goes_on(earlier: _Run, later: _Run, producer_id: int) -> bool | None:
    """Whether a producer's sequence goes on from one run to another; None for a new epoch."""
    before, after = earlier.spans[producer_id], later.spans[producer_id]
    if before.last_epoch != after.first_epoch:
        return None
    return increment_sequence(before.last_sequence, 1) == after.first_sequence


def _repeats(before: SequenceSpan, after: SequenceSpan) -> bool:
    return before.last_epoch == after.first_epoch and after.first_sequence <= before.last_sequence


def _join_doubts(runs: list[_Run]) -> None:
    """Let runs that go on from each other past a name stand or fall together."""
    chains: list[list[_Run]] = []
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


def _without_conflicts(runs: list[_Run], logs: Mapping[int, ValidBatches]) -> list[_Run]:
    """The runs that stay where others have other batches at their offsets."""
    kept: list[_Run] = []
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


def _is_close(run: _Run, others: list[_Run]) -> bool:
    """Whether a run that goes has hardly more doubts than one that stays instead."""
    return any(run.doubts - other.doubts <= _LITTLE for other in others)


def _conflict(run: _Run, other: _Run, logs: Mapping[int, ValidBatches]) -> bool:
    """Whether two runs have different batches at the same offsets, or one is there twice."""
    if not run.overlaps(other) or other.is_alone:
        return False
    mine = _identities(run, other, logs[run.base_offset])
    if not mine <= _identities(other, run, logs[other.base_offset]):
        return True
    run.is_twice = len(mine) == run.rows.stop - run.rows.start
    return run.is_twice


def _identities(run: _Run, other: _Run, batches: ValidBatches) -> set[tuple[int, int, int]]:
    """First and last offset, and checksum, of the batches of a run that overlap another."""
    first, last = batches.first_offset[run.rows], batches.last_offset[run.rows]
    within = (first <= other.last) & (last >= other.first)
    columns = (first[within], last[within], batches.crc[run.rows][within])
    return set(zip(*(column.tolist() for column in columns), strict=True))


def _without_repeats(runs: list[_Run]) -> list[_Run]:
    """The runs that stay where a producer's sequence comes twice."""
    kept = list(runs)
    while True:
        blamed = next(_blamed(kept), None)
        if blamed is None:
            return kept
        kept.remove(blamed)


def _blamed(runs: list[_Run]) -> Iterator[_Run]:
    for later in runs:
        for producer_id in later.spans:
            earlier = _neighbour(runs, later, producer_id, earlier=True)
            if earlier is None or earlier.base_offset == later.base_offset:
                continue
            if not _repeats(earlier.spans[producer_id], later.spans[producer_id]):
                continue
            worse = max(later, earlier, key=lambda run: (run.doubts, -run.weight))
            if worse.doubts >= _CERTAIN or earlier.last + 1 != later.first:
                yield worse


class _Evidence:
    """The files beside the logs that tell what belongs to the partition.

    Raises:
        OSError: one cannot be read.
    """

    def __init__(self, directory: VirtualDirectory) -> None:
        self._directory = directory
        self._epochs = self._read_epochs()
        self._snapshots: dict[int, dict[int, ProducerEntry] | None] = {}
        self.has_indexes = any(
            name.endswith(FileKind.OFFSET_INDEX.value) for name in directory.names()
        )
        self.has_snapshots = bool(directory.snapshot_names())

    def _read_epochs(self) -> list[EpochEntry]:
        if names.LEADER_EPOCH_CHECKPOINT not in self._directory:
            return []
        try:
            entries = decode_leader_epoch_checkpoint(
                self._directory.read(names.LEADER_EPOCH_CHECKPOINT)
            )
        except FormatError:
            return []
        return sorted(entries, key=lambda entry: entry.start_offset)

    def contradicts_epochs(self, run: _Run, batches: ValidBatches) -> bool:
        """Whether a batch has another leader epoch than the checkpoint says."""
        if not self._epochs or batches.is_collapsed:
            return False
        starts = [entry.start_offset for entry in self._epochs]
        epochs = np.array([-1, *(entry.epoch for entry in self._epochs)], np.int64)
        known = np.searchsorted(np.array(starts), batches.first_offset[run.rows], side="right")
        found = batches.leader_epoch[run.rows]
        return bool(((found >= 0) & (known > 0) & (found != epochs[known])).any())

    def index_agreement(self, run: _Run, batches: ValidBatches) -> bool | None:
        """Whether the entries of the log's index for a run fit; None where there are none."""
        name = file_name(run.base_offset, FileKind.OFFSET_INDEX)
        if batches.is_collapsed:
            return True
        if name not in self._directory:
            return None
        data = self._directory.read(name)
        index = offset_index.decode(data[: len(data.rstrip(b"\0")) + 7 & ~7], run.base_offset)
        starts = batches.position[run.rows]
        begin, end = int(starts[0]), int(starts[-1] + batches.size_bytes[run.rows][-1])
        chosen = (index.position >= begin) & (index.position < end) & (index.position > 0)
        if not chosen.any():
            return None if end - begin <= _UNINDEXED_BYTES or len(index.offset) == 0 else False
        positions, offsets = index.position[chosen], index.offset[chosen]
        at = np.searchsorted(starts, positions)
        is_start = (at < len(starts)) & (starts[np.minimum(at, len(starts) - 1)] == positions)
        low = batches.first_offset[run.rows][np.minimum(at, len(starts) - 1)]
        return bool((is_start & (offsets >= low) & (offsets <= run.last)).all())

    def snapshot(self, offset: int) -> dict[int, ProducerEntry] | None:
        """The producers in the snapshot at an offset; None where there is none to be read."""
        if offset not in self._snapshots:
            name = file_name(offset, FileKind.PRODUCER_SNAPSHOT)
            entries = None
            if name in self._directory:
                try:
                    found = producer_snapshot.read(self._directory.read(name)).entries
                    entries = {entry.producer_id: entry for entry in found}
                except FormatError:
                    entries = None
            self._snapshots[offset] = entries
        return self._snapshots[offset]
