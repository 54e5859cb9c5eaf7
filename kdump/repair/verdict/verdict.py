"""What loading, or a repair, would do to a partition, in one sentence.

:mod:`kdump.repair.verdict.outcome_verdict` judges an outcome. A verdict on a partition that is
valid needs none, and so nothing of what loads and repairs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kdump.repair.policies import Policy
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.broker.loader.load_report import Loss, SwapLoss


class VerdictKind(enum.Enum):
    """The kinds of verdict, from best to worst."""

    VALID = "valid"
    UNCLEAN = "unclean"
    """Segments are recovered, as after any crash, and all are valid; zeroes after the last batch,
    which were never a batch, are truncated."""
    REBUILT = "rebuilt"
    """Leftover files, indexes or segments are repaired, and no batch is lost."""
    LOSS = "loss"
    """Batches are lost, or bytes that may have been batches."""
    REFUSED = "refused"
    """A broker does not load the partition."""


SUBJECTS: Final = {
    Policy.BROKER: "a broker",
    Policy.SALVAGE: "salvaging",
    Policy.TRUNCATE: "truncating",
}
"""Who does what a verdict says, as its sentence begins."""


class Verdict(Struct, frozen=True):
    """What a broker would do to a partition, or a repair by another policy.

    Attributes:
        kind: the verdict in one word.
        sentence: what would be done.
        done: what a run reports once it has been done.
    """

    kind: VerdictKind
    sentence: str
    done: str
    swap_losses: tuple[SwapLoss, ...] = ()
    """What is lost with unfinished replacements; also part of the sentence."""
    cuts_padding: bool = False
    """Whether zeroes after the last batch would be truncated."""
    details: tuple[str, ...] = ()
    """The parts of what would be done that the sentence only counts."""


def lasting_verdict(kind: VerdictKind, sentence: str) -> Verdict:
    """A verdict that reads the same before and after a run."""
    return Verdict(kind, sentence, sentence)


def harmless_verdict(
    unclean: Sequence[int], active_base_offset: int | None, policy: Policy = Policy.BROKER
) -> Verdict:
    """The verdict if nothing is lost and nothing is repaired.

    Args:
        unclean: base offsets of the segments that are recovered.
        active_base_offset: of the last segment.
    """
    if not unclean:
        return lasting_verdict(VerdictKind.VALID, "valid")
    if list(unclean) == [active_base_offset]:
        sentence = "only the active segment is unclean, as after any crash"
        return lasting_verdict(VerdictKind.UNCLEAN, sentence)
    segments = counted(len(unclean), "segment")
    what = f"recover {segments} that may not have been flushed, and all are valid"
    return Verdict(VerdictKind.UNCLEAN, f"{SUBJECTS[policy]} would {what}", f"done: {what}")


def lost_with(loss: Loss) -> str:
    """Say what is lost with an unfinished replacement."""
    records = "records" if loss.records is None else counted(loss.records, "record")
    batches = counted(loss.batches, "batch", "batches")
    return f"{records} of {batches} (offsets {loss.first_offset}–{loss.last_offset})"  # noqa: RUF001
