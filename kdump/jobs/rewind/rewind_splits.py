"""The jobs that read logs to find where to cut them, and that cut them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.engine.job import Split
from kdump.errors import KdumpError
from kdump.formats.errors import FormatError
from kdump.formats.names import TopicPartition
from kdump.jobs.loading.load_partition import put_away
from kdump.jobs.loading.load_split import LoadSplit
from kdump.jobs.problems.unreadable import Unreadable
from kdump.repair.rewind.earlier_run import LogRole, ends_in_appended, records_from
from kdump.repair.rewind.ended_transactions import Ends, end_batches
from kdump.repair.rewind.group_offsets import offsets_past_ends, record_batches
from kdump.repair.rewind.log_facts import (
    LogFacts,
    Moment,
    NotRewindableError,
    loaded,
    read_facts,
)
from kdump.repair.rewind.rewound_log import (
    Removed,
    RewoundLog,
    latest_records,
    rewound,
    with_appended,
)
from kdump.repair.rewind.share_offsets import (
    ShareStates,
    WrittenShare,
    initialized_shares,
    read_share_states,
)
from kdump.target.virtual_directory import VirtualDirectory

Found = TypeVar("Found")


class NotRewindable(Struct, frozen=True):
    """Why a partition cannot be cut; says what to do first."""

    what: str


def valid(found: Found | NotRewindable | Unreadable) -> Found:
    """What a job found.

    Raises:
        NotRewindableError: it says that the partition cannot be cut.
        KdumpError: a file cannot be read.
    """
    if isinstance(found, NotRewindable):
        raise NotRewindableError(f"{found.what}; nothing was changed")
    if isinstance(found, Unreadable):
        raise KdumpError(f"{found.path}: cannot be read: {found.what}; nothing was changed")
    return found


class FactsSplit(Split, frozen=True, kw_only=True):
    """A log to read."""

    key: TopicPartition
    load: LoadSplit
    moment: Moment


class FactsJob(Struct, frozen=True):
    """Reads what has to be known of a log before it is cut."""

    def run(self, split: FactsSplit, /) -> LogFacts | NotRewindable | Unreadable:
        try:
            return read_facts(split.path, split.key, split.load.context, split.moment)
        except NotRewindableError as problem:
            return NotRewindable(str(problem))
        except OSError as failure:
            return Unreadable.of(failure, split.path)


class EarlierRunSplit(Split, frozen=True, kw_only=True):
    """A log that is longer than another replica.

    Attributes:
        ends: where shorter replicas end.
        topics: names by id, where these are needed.
    """

    role: LogRole
    load: LoadSplit
    ends: tuple[int, ...]
    topics: Mapping[str, str]


EarlierRuns = Mapping[int, Mapping[TopicPartition, int]]


class EarlierRunJob(Struct, frozen=True):
    """Finds where what an earlier rewind appended to a log begins, if that ends it.

    Returns:
        By offset, the ends of logs to which committed offsets are lowered from there on.
    """

    def run(self, split: EarlierRunSplit, /) -> EarlierRuns | NotRewindable | Unreadable:
        directory = VirtualDirectory(split.path)
        try:
            # A follower that was behind hardly ends where a segment begins: nothing is read then.
            ends = {*split.ends} & {*directory.base_offsets()}
            if not ends:
                return {}
            loaded(directory, split.load.context)
            return {
                end: found
                for end in sorted(ends)
                if (found := ends_in_appended(directory, split.role, end, split.topics)) is not None
            }
        except NotRewindableError as problem:
            return NotRewindable(str(problem))
        except OSError as failure:
            return Unreadable.of(failure, split.path)


class ShareStatesSplit(Split, frozen=True, kw_only=True):
    """A log of ``__share_group_state``.

    Attributes:
        end: batches from there on are left out; None leaves out none.
    """

    load: LoadSplit
    log_start_offset: int
    end: int | None


class ShareStatesJob(Struct, frozen=True):
    """Reads what share groups had delivered at a moment."""

    def run(self, split: ShareStatesSplit, /) -> ShareStates | NotRewindable | Unreadable:
        directory = VirtualDirectory(split.path)
        try:
            loaded(directory, split.load.context)
            return read_share_states(directory, split.log_start_offset, split.end)
        except NotRewindableError as problem:
            return NotRewindable(str(problem))
        except OSError as failure:
            return Unreadable.of(failure, split.path)


class GroupEnds(Struct, frozen=True):
    """What is needed to lower committed offsets.

    Attributes:
        ends: where logs end.
        committing: the producers whose transactions a coordinator is going to commit.
    """

    ends: Mapping[TopicPartition, int]
    committing: frozenset[int]


class Appended(Struct, frozen=True):
    """What is appended to a log that is cut.

    Attributes:
        end_offset: where the cut ends its longest replica; one that ends before it fetches the new
            records.
        coordinator_epochs: the latest leader epochs of the logs of their coordinators.
        groups: to lower the committed offsets in it; None to leave them.
        shares: what share groups have delivered.
        again_from: where the records of an earlier rewind begin that have to be appended again;
            None if there are none.
    """

    end_offset: int
    ends: Ends
    coordinator_epochs: Mapping[TopicPartition, int]
    groups: GroupEnds | None
    shares: tuple[WrittenShare, ...] = ()
    again_from: int | None = None


class RewindSplit(Split, frozen=True, kw_only=True):
    """A log to cut.

    Attributes:
        cut: no offset at or after it is kept; None to cut nothing.
        time_ms: records that are not later are counted.
        compared_from: the first offset that is compared with other replicas.
        compared_to: the offsets up to which it is compared, in order.
        appended: what is appended then; None for nothing.
    """

    load: LoadSplit
    cut: int | None
    time_ms: int | None
    compared_from: int = 0
    compared_to: tuple[int, ...] = ()
    appended: Appended | None = None


class RewindJob(Struct, frozen=True):
    """Cuts a log; writes nothing to it."""

    def run(self, split: RewindSplit, /) -> RewoundLog | NotRewindable | Unreadable:
        try:
            return _rewound(split)
        except NotRewindableError as problem:
            return NotRewindable(str(problem))
        except FormatError as problem:
            return NotRewindable(f"{split.path}: a committed offset cannot be read: {problem.what}")
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def _rewound(split: RewindSplit) -> RewoundLog:
    context = split.load.context
    directory, log = rewound(
        split.path, context, split.cut, split.time_ms, split.compared_from, split.compared_to
    )
    appended = split.appended
    if appended is not None and log.end_offset == appended.end_offset:
        log = _with(appended, directory, log, context)
        if appended.again_from is not None:
            _require_again(split, directory, appended.again_from)
            log = replace(log, removed=Removed())
    files = put_away(split.load, log.after.files)
    return replace(log, before=replace(log.before, files={}), after=replace(log.after, files=files))


def _require_again(split: RewindSplit, directory: VirtualDirectory, offset: int) -> None:
    """Refuse to lose what an earlier rewind appended.

    Raises:
        NotRewindableError: some of it is not appended again.
    """
    before = VirtualDirectory(split.path)
    loaded(before, split.load.context)
    if not {*records_from(before, offset)} <= {*records_from(directory, offset)}:
        raise NotRewindableError(
            f"{split.path}: an earlier kdump rewind appended records from offset {offset} on, which"
            " another replica lacks, and this run would not append all of them; run it again as"
            " that time (same offsets, and the log directories of all brokers), or undo that run"
            " first with kdump undo"
        )


def _with(
    appended: Appended, directory: VirtualDirectory, log: RewoundLog, context: LoadContext
) -> RewoundLog:
    if appended.ends.markers or appended.ends.completed:

        def encode_ends(end: int, epoch: int, time_ms: int) -> Iterable[bytes]:
            return end_batches(appended.ends, appended.coordinator_epochs, end, epoch, time_ms)

        log = with_appended(directory, log, context, encode_ends)
    if appended.shares:
        of_shares = [(each.key, each.value) for each in appended.shares]
        log = with_appended(directory, log, context, partial(record_batches, of_shares))
    groups = appended.groups
    if groups is None:
        return log
    latest = latest_records(directory)
    log = replace(log, shares=tuple(sorted(initialized_shares(latest))))
    lowered = offsets_past_ends(latest, groups.ends, groups.committing)
    if not lowered:
        return log
    of_groups = [(each.key, each.value) for each in lowered]
    log = with_appended(directory, log, context, partial(record_batches, of_groups))
    return replace(log, lowered=tuple(lowered))
