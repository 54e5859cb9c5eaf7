"""What loading would do to a partition, in one sentence for the person on call."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdump.repair.account import Account, Cut, Dropped, Loss, Outcome
from kdump.repair.loader import Recovered
from kdump.repair.refusal import Refusal


class VerdictKind(enum.Enum):
    """How bad it is, from best to worst."""

    SOUND = "sound"
    UNCLEAN = "unclean"
    """Segments are gone through, as after any crash, and all of it holds."""
    REBUILT = "rebuilt"
    """Leftovers, indexes or segments are put right, and no batch is lost."""
    LOSS = "loss"
    """Bytes of logs go."""
    REFUSED = "refused"
    """A broker does not load it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a broker would do."""

    kind: VerdictKind
    sentence: str


def verdict(outcome: Recovered | Refusal) -> Verdict:
    """Judge what :func:`~kdump.repair.loader.recover_partition` gave."""
    if isinstance(outcome, Refusal):
        return Verdict(VerdictKind.REFUSED, f"a broker would refuse to start: {outcome}")
    account = outcome.account
    losses = [*map(_cut, account.cuts), *_dropped(account.dropped)]
    repairs = list(_repairs(account))
    if losses or repairs:
        kind = VerdictKind.LOSS if losses else VerdictKind.REBUILT
        ending = "" if losses else "; no batch is lost"
        return Verdict(kind, f"a broker would {_and([*losses, *repairs])}{ending}")
    unclean = [segment.base_offset for segment in account.recovered]
    if not unclean:
        return Verdict(VerdictKind.SOUND, "sound")
    if unclean == [outcome.active_base_offset]:
        return Verdict(
            VerdictKind.UNCLEAN, "only the active segment is unclean, as after any crash"
        )
    return Verdict(
        VerdictKind.UNCLEAN,
        f"a broker would go through {_count(len(unclean), 'segment')} that may not have been"
        " flushed, and all would hold",
    )


def _cut(cut: Cut) -> str:
    where = f"from segment {cut.name}, from byte {cut.position} on"
    if cut.loss.batches:
        return f"cut {_held(cut.loss)} {where}"
    return f"cut {_count(cut.loss.size_bytes, 'byte')} without a sound batch {where}"


def _dropped(dropped: Sequence[Dropped]) -> Iterable[str]:
    if not dropped:
        return
    loss = _together([segment.loss for segment in dropped])
    names = dropped[0].name if len(dropped) == 1 else f"{dropped[0].name} to {dropped[-1].name}"
    segments = _count(len(dropped), "segment")
    yield f"delete {segments} ({names}) with {_held(loss)} because {dropped[0].reason}"


def _repairs(account: Account) -> Iterable[str]:
    for outcome, what in (
        (Outcome.DELETED, "delete {}"),
        (Outcome.PUT_IN_PLACE, "put {} in place"),
        (Outcome.REPLACED, "delete {} that these replace"),
    ):
        count = sum(leftover.outcome is outcome for leftover in account.leftovers)
        if count:
            thing = "file" if outcome is Outcome.REPLACED else "leftover"
            yield what.format(_count(count, thing))
    for split in account.splits:
        yield f"split segment {split.name} into {len(split.base_offsets)}"
    for segment in account.recovered:
        if segment.is_rebuilt:
            yield f"rebuild the indexes of segment {segment.base_offset} because {segment.reason}"


def _held(loss: Loss) -> str:
    """``3 batches (offsets 1200 to 1290, 41 records)``, as far as it can be known."""
    if not loss.batches:
        return f"{_count(loss.size_bytes, 'byte')} and no sound batch"
    records = "" if loss.records is None else f", {_count(loss.records, 'record')}"
    offsets = f"offsets {loss.first_offset}–{loss.last_offset}"  # noqa: RUF001 - a range
    return f"{_count(loss.batches, 'batch', 'batches')} ({offsets}{records})"


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


def _count(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
