"""Say in one sentence what loading, or a repair, would do to a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kdump.broker.loader.load_report import (
    Cause,
    Dropped,
    HiddenBatches,
    LeftoverOutcome,
    LoadReport,
    LogCut,
    Loss,
    QuarantinedRange,
    SwapLoss,
    WrongTxn,
)
from kdump.broker.loader.recovered_partition import Recovered
from kdump.repair.policies import Policy
from kdump.repair.salvage.recovered_0_7 import Recovered07
from kdump.repair.verdict.verdict import (
    SUBJECTS,
    Verdict,
    VerdictKind,
    harmless_verdict,
    lasting_verdict,
    lost_with,
)
from kdump.target.refusal import Refusal
from kdump.words import counted

MOST_NAMED: Final = 5
"""A sentence names so many ranges, markers or segments; it only counts more of them."""


def verdict(outcome: Recovered | Recovered07 | Refusal, policy: Policy = Policy.BROKER) -> Verdict:
    """Judge the outcome of a repair of a partition by ``policy``."""
    subject = SUBJECTS[policy]
    if isinstance(outcome, Refusal):
        broker = f"a broker would {outcome.what_happens}"
        refuses = broker if policy is Policy.BROKER else "not repaired"
        return lasting_verdict(VerdictKind.REFUSED, f"{refuses}: {outcome}")
    report = outcome.report
    if report.is_empty:
        return harmless_verdict((), None, policy)
    missing = [piece for piece in report.quarantined if _loses(piece)]
    others = [piece for piece in report.quarantined if not _loses(piece)]
    cuts = [cut for cut in report.cuts if not cut.is_padding]
    details: list[str] = []
    losses = [
        *_swapped(report.swap_losses),
        *map(_truncated, cuts),
        *_dropped(report.dropped),
        *map(_hidden, report.hidden),
        *_named_or_counted(
            map(_wrong_txn, report.wrong_txns),
            f"have {counted(len(report.wrong_txns), 'transaction')} that the log contradicts",
            details,
        ),
        *_named_or_counted(map(_quarantined, missing), _all_quarantined(missing), details),
    ]
    repairs = [*_not_lost(others, details), *_repairs(report, details)]
    padding = [_padding(cut) for cut in report.cuts if cut.is_padding]
    if losses or repairs:
        kind = VerdictKind.LOSS if losses else VerdictKind.REBUILT
        ending = "" if losses else "; no batch is lost"
        what = f"{_and([*losses, *repairs, *padding])}{ending}"
        return Verdict(
            kind,
            f"{subject} would {what}",
            f"done: {what}",
            report.swap_losses,
            details=tuple(details),
        )
    unclean = [segment.base_offset for segment in report.recovered]
    active = outcome.active_base_offset if isinstance(outcome, Recovered) else None
    harmless = harmless_verdict(unclean, active, policy)
    if not padding:
        return harmless
    return Verdict(
        VerdictKind.UNCLEAN,
        f"{harmless.sentence}; {subject} would {_and(padding)}",
        f"{harmless.done}; done: {_and(padding)}",
        cuts_padding=True,
    )


def _truncated(cut: LogCut) -> str:
    if cut.loss.batches:
        lost = _held(cut.loss)
    else:
        lost = f"{counted(cut.loss.size_bytes, 'byte')} without a valid batch"
    return f"truncate segment {cut.name} at byte {cut.position}, losing {lost}"


def _padding(cut: LogCut) -> str:
    size = counted(cut.loss.size_bytes, "byte")
    return (
        f"truncate segment {cut.name} at byte {cut.position}, removing {size} of unwritten zeroes"
    )


def _dropped(dropped: Sequence[Dropped]) -> Iterable[str]:
    if not dropped:
        return
    loss = _together([segment.loss for segment in dropped])
    names = dropped[0].name if len(dropped) == 1 else f"{dropped[0].name} to {dropped[-1].name}"
    segments = counted(len(dropped), "segment")
    yield f"delete {segments} ({names}) with {_held(loss)} because {dropped[0].reason}"


def _hidden(hidden: HiddenBatches) -> str:
    return f"hide {_held(hidden.loss)} of segment {hidden.name} because {hidden.reason}"


def _wrong_txn(txn: WrongTxn) -> str:
    which = f"the transaction of producer {txn.producer_id} at offset {txn.first_offset}"
    if txn.is_open:
        return f"forget that {which} is open, and show its records as if it was committed"
    return f"keep {which} open, which is not, and hide all from there on from read_committed"


def _swapped(losses: Sequence[SwapLoss]) -> Iterable[str]:
    replaced = [each for each in losses if not each.is_unfinished]
    if replaced:
        loss = _together([each.loss for each in replaced])
        one, last = replaced[0].name, replaced[-1].name
        names = f"segment {one}" if len(replaced) == 1 else f"segments {one} to {last}"
        yield f"replace {names} with an incomplete .swap and lose {lost_with(loss)}"
    for each in losses:
        if each.is_unfinished:
            yield f"delete {each.name} and lose {lost_with(each.loss)} that no segment has"


def _loses(piece: QuarantinedRange) -> bool:
    """Whether records are lost with quarantined bytes; zeroes at the end never were records."""
    is_padding = piece.file is None and piece.last_offset is None
    return piece.first_offset is not None and not is_padding and piece.cause is not Cause.MISSING


def _quarantined(piece: QuarantinedRange) -> str:
    if piece.cause is Cause.MISSING:
        offsets = f"{piece.first_offset}–{piece.last_offset}"  # noqa: RUF001 - a range
        return f"record in {piece.file} that offsets {offsets} were missing before"
    size = counted(piece.size_bytes, "byte")
    where = f"of segment {piece.name} at byte {piece.start}"
    if piece.file is None:
        return f"remove {size} of zeroes {where}"
    return f"quarantine {size} {where}, because {piece.reason}{_missing(piece)}"


def _missing(piece: QuarantinedRange) -> str:
    """Say what is lost with quarantined bytes, as far as it can be known."""
    if piece.first_offset is None:
        return " (no offset is lost)"
    if piece.last_offset is None:
        return f" (lost from offset {piece.first_offset} on)"
    most = piece.most_records
    count = "" if most is None else f", {counted(most, 'record')}"
    if piece.records is None and most is not None:
        count = f", at most {counted(most, 'record')}"
    offsets = f"offsets {piece.first_offset}–{piece.last_offset}"  # noqa: RUF001 - a range
    lost = "perhaps lost" if piece.cause is Cause.UNDECIDED else "lost"
    return f" ({lost}: {offsets}{count})"


def _named_or_counted(parts: Iterable[str], count: str, details: list[str]) -> list[str]:
    """The parts if they are few; otherwise only ``count``, and the parts become details."""
    named = list(parts)
    if len(named) <= MOST_NAMED:
        return named
    details += named
    return [count]


def _all_quarantined(pieces: Sequence[QuarantinedRange]) -> str:
    """Say what is quarantined and lost in all ``pieces`` together."""
    counts = [piece.most_records for piece in pieces]
    known = [count for count in counts if count is not None]
    lost = f", losing at most {counted(sum(known), 'record')}" if len(known) == len(counts) else ""
    return f"quarantine {_ranges(pieces)}{lost}"


def _not_lost(pieces: Sequence[QuarantinedRange], details: list[str]) -> Iterable[str]:
    """Say what is done with ranges that lose no record now."""
    noted = [piece for piece in pieces if piece.cause is Cause.MISSING]
    rest = [piece for piece in pieces if piece.cause is not Cause.MISSING]
    zeroes = [piece for piece in rest if piece.file is None]
    copies = [piece for piece in rest if piece.file is not None]
    for some, count in (
        (copies, f"quarantine {_ranges(copies)} (no offset is lost)"),
        (zeroes, f"remove {_ranges(zeroes)} of zeroes"),
        (noted, f"record {counted(len(noted), 'range')} of offsets that were missing before"),
    ):
        yield from _named_or_counted(map(_quarantined, some), count, details)


def _ranges(pieces: Sequence[QuarantinedRange]) -> str:
    """``500 ranges of 10 segments (515000 bytes)``."""
    segments = counted(len({piece.name for piece in pieces}), "segment")
    size = counted(sum(piece.size_bytes for piece in pieces), "byte")
    return f"{counted(len(pieces), 'range')} of {segments} ({size})"


def _repairs(report: LoadReport, details: list[str]) -> Iterable[str]:
    for outcome, what in (
        (LeftoverOutcome.DELETED, "delete {}"),
        (LeftoverOutcome.PUT_IN_PLACE, "move {} into place"),
        (LeftoverOutcome.REPLACED, "delete {} that they replace"),
    ):
        count = sum(leftover.outcome is outcome for leftover in report.leftovers)
        if count:
            thing = "file" if outcome is LeftoverOutcome.REPLACED else "leftover file"
            yield what.format(counted(count, thing))
    yield from _named_or_counted(
        (
            f"abort the transaction of producer {marker.producer_id} at offset {marker.offset},"
            " whose marker is lost"
            for marker in report.added_markers
        ),
        f"abort {counted(len(report.added_markers), 'transaction')} whose markers are lost",
        details,
    )
    if report.ignored_log_start_offset is not None:
        yield (
            f"ignore the log start offset {report.ignored_log_start_offset}, for which a broker"
            " would delete all records"
        )
    parts = sum(len(split.base_offsets) for split in report.splits)
    yield from _named_or_counted(
        (f"split segment {each.name} into {len(each.base_offsets)}" for each in report.splits),
        f"split {counted(len(report.splits), 'segment')} into {parts}",
        details,
    )
    yield from _named_or_counted(
        (
            f"keep segment {each.name}, which may be that of another partition: its"
            f" {' and '.join(each.against)} {'has' if len(each.against) == 1 else 'have'}"
            " other batches"
            for each in report.doubtful
        ),
        f"keep {counted(len(report.doubtful), 'segment')} that may be those of other partitions",
        details,
    )
    rebuilt = [segment for segment in report.recovered if segment.is_rebuilt]
    yield from _named_or_counted(
        (f"rebuild the indexes of segment {each.base_offset}: {each.reason}" for each in rebuilt),
        f"rebuild the indexes of {counted(len(rebuilt), 'segment')}",
        details,
    )


def _held(loss: Loss) -> str:
    """``3 batches (offsets 1200 to 1290, 41 records)``, as far as it can be known."""
    if not loss.batches:
        return f"{counted(loss.size_bytes, 'byte')} and no valid batch"
    records = "" if loss.records is None else f", {counted(loss.records, 'record')}"
    offsets = f"offsets {loss.first_offset}–{loss.last_offset}"  # noqa: RUF001 - a range
    return f"{counted(loss.batches, 'batch', 'batches')} ({offsets}{records})"


def _together(losses: Sequence[Loss]) -> Loss:
    records = [loss.records for loss in losses]
    known = [count for count in records if count is not None]
    first = [loss.first_offset for loss in losses if loss.first_offset is not None]
    last = [loss.last_offset for loss in losses if loss.last_offset is not None]
    return Loss(
        size_bytes=sum(loss.size_bytes for loss in losses),
        batches=sum(loss.batches for loss in losses),
        records=sum(known) if len(known) == len(records) else None,
        first_offset=min(first, default=None),
        last_offset=max(last, default=None),
        damaged_bytes=sum(loss.damaged_bytes for loss in losses),
    )


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
