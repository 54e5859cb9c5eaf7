"""Cut all logs of a cluster at one moment.

Nothing is written: the result is a target state for each log directory, for ``kdump rewind`` to
show and to apply.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.broker.loader.checkpoints import is_loaded, recovered_root, require_readable, with_lines
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.engine_rates import JobKind
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from kdump.jobs.known_cluster import known_cluster
from kdump.jobs.loading.load_split import LoadSplit, load_split
from kdump.jobs.loading.verdict_words import REMOTE_STORAGE
from kdump.jobs.rewind.later_metadata import LaterMetadata, read_later_metadata
from kdump.jobs.rewind.rewind_splits import (
    Appended,
    EarlierRunJob,
    EarlierRunSplit,
    FactsJob,
    FactsSplit,
    GroupEnds,
    RewindJob,
    RewindSplit,
    ShareStatesJob,
    ShareStatesSplit,
    valid,
)
from kdump.jobs.rewind.share_groups import (
    LogShares,
    LostShare,
    furthest,
    lost_shares,
    shares_to_write,
)
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.broker import partitions_twice
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.repair.rewind.consistent_cuts import (
    Broken,
    Transaction,
    broken,
    find_transactions,
    is_kept,
    lowered,
)
from kdump.repair.rewind.earlier_run import LogRole
from kdump.repair.rewind.ended_transactions import Ends, ends_of
from kdump.repair.rewind.group_offsets import LoweredOffset
from kdump.repair.rewind.log_facts import LogFacts, Moment, NotRewindableError
from kdump.repair.rewind.rewound_log import RewoundLog, latest_epoch
from kdump.repair.rewind.share_offsets import WrittenShare
from kdump.state.metadata.settings import DirectorySettings
from kdump.state.transactions.transaction_coordinator import TRANSACTION_STATE_TOPIC
from kdump.storage.location import Location
from kdump.target.target_file import Kept, TargetFile

LOOKBACK_MS: Final = 3_600_000
"""Clocks of brokers differ by less than half of that: memory does not grow with all transactions
of a log."""
_CUT_LINES: Final = (names.REPLICATION_OFFSET_CHECKPOINT, names.CLEANER_OFFSET_CHECKPOINT)

_ROLES: Final = {
    OFFSETS_TOPIC: LogRole.OFFSETS,
    TRANSACTION_STATE_TOPIC: LogRole.TRANSACTIONS,
    SHARE_STATE_TOPIC: LogRole.SHARES,
}


class RewindRequest(Struct, frozen=True):
    """What to cut, and where.

    Attributes:
        directories: the log directories, of one broker or of several.
        time_ms: the moment; None if there are offsets.
        offsets: where partitions are to end; others are not cut. None if there is a moment.
        excluded: directories of partitions that are left unchanged.
    """

    directories: Sequence[LogDirectory]
    settings: DirectorySettings
    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    excluded: Collection[Location] = ()
    now_ms: int = 0
    large_content: LargeContent = field(default_factory=LargeContent)


class RewoundReplica(Struct, frozen=True):
    """A replica, and what it becomes.

    Attributes:
        cleaned_to: up to there the cleaner may have removed records; 0 if it has not.
        has_appended: whether it has what an earlier run appended; that is appended again.
        is_behind: whether it ends before what is appended to other replicas, and may become leader:
            then they lose that.
    """

    directory: LogDirectory
    partition: Partition
    key: TopicPartition
    log: RewoundLog
    cleaned_to: int
    has_appended: bool = False
    is_behind: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether records are removed from it for good."""
        return self.log.is_cut and not self.has_appended


class DirectoryRewind(Struct, frozen=True):
    """What a log directory becomes."""

    directory: LogDirectory
    target: TargetDirectory


class Rewind(Struct, frozen=True):
    """What a rewind does.

    Attributes:
        directories: what each log directory becomes.
        replicas: all of them, in the order of the directories.
        ends: where the log of each partition ends.
        again: the partitions in which an earlier run appended records on some replicas only.
        moved: by partition, where the moment alone would have ended it, if that is later.
        without_times: the partitions whose records have no timestamps: nothing is cut from them.
        open: the transactions that are open.
        ended: those that were being committed or aborted, and are ended by this.
        left: those of them that are left to their coordinators, because not all replicas are at
            hand.
        in_part: committed transactions that offsets keep only in part.
        lowered: committed offsets that are set to the ends of their logs.
        shares: what share groups have delivered, where it has to be written again.
        lost_shares: what share groups had delivered, and no log shows any more.
        absent: by node, how many partitions that are cut have a replica there, and it is not among
            the directories.
        has_metadata: whether the cluster's metadata says where replicas are.
        later: what happened to the cluster's metadata after the moment; None if that is not known.
        elsewhere: partitions with given offsets that are not in the log directories.
        unknown: likewise, where the cluster's metadata has no such partition; without metadata,
            where no log directory has such a topic.
    """

    directories: tuple[DirectoryRewind, ...]
    replicas: tuple[RewoundReplica, ...]
    ends: Mapping[TopicPartition, int]
    again: tuple[TopicPartition, ...]
    moved: Mapping[TopicPartition, int]
    without_times: tuple[TopicPartition, ...]
    open: tuple[Transaction, ...]
    ended: tuple[Transaction, ...]
    left: tuple[Transaction, ...]
    in_part: tuple[Transaction, ...]
    lowered: tuple[LoweredOffset, ...]
    shares: tuple[WrittenShare, ...]
    lost_shares: tuple[LostShare, ...]
    absent: Mapping[int, int]
    has_metadata: bool
    later: LaterMetadata | None
    elsewhere: tuple[TopicPartition, ...] = ()
    unknown: tuple[TopicPartition, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether anything is cut."""
        return any(each.is_cut for each in self.replicas)


@during("finding where to cut")
def rewind(request: RewindRequest, options: EngineOptions = DEFAULT_OPTIONS) -> Rewind:
    """Compute the target states of log directories that are cut at one moment.

    Raises:
        NotRewindableError: a log is damaged, replicas disagree, or offsets would leave a
            transaction open that nobody ends.
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine broke.
    """
    return _Rewinding(request, options).result()


class _Replica(Struct, frozen=True):
    directory: LogDirectory
    partition: Partition
    key: TopicPartition
    load: LoadSplit
    cleaned_to: int


class _Cuts(Struct, frozen=True):
    """Where logs are cut, and why.

    Attributes:
        believed: by partition, the facts about the longest replica.
        again: where the records begin that an earlier run appended on some replicas only.
        earlier_ends: of logs, to which these records lower committed offsets.
        first: where the moment alone cuts, and these records.
    """

    facts: Sequence[LogFacts]
    believed: Mapping[TopicPartition, LogFacts]
    again: Mapping[TopicPartition, int]
    earlier_ends: Mapping[TopicPartition, int]
    first: Mapping[TopicPartition, int]
    cuts: Mapping[TopicPartition, int]
    transactions: Sequence[Transaction]


class _Rewinding:
    def __init__(self, request: RewindRequest, options: EngineOptions) -> None:
        self._request = request
        self._options = options
        self._replicas = [*self._found()]
        self._cluster = known_cluster(request.directories, request.settings.values())

    def result(self) -> Rewind:
        request = self._request
        by_key = defaultdict[TopicPartition, list[int]](list)
        for number, replica in enumerate(self._replicas):
            by_key[replica.key].append(number)
        found = self._cuts(by_key, LOOKBACK_MS)
        if not self._suffices(found):
            found = self._cuts(by_key, None)
        facts, believed = found.facts, found.believed
        first_cuts, cuts, transactions = found.first, found.cuts, found.transactions
        in_part = [] if request.offsets is None else [*_in_part(cuts, transactions)]
        self._refuse_remote_storage(cuts)
        logs = self._cut(by_key, facts, cuts)
        self._require_agreement(by_key, facts, cuts, logs)
        ends = {
            key: max(logs[number].end_offset for number in numbers)
            for key, numbers in by_key.items()
        }
        is_open, decided = _not_completed(cuts, transactions)
        ended, left = list[Transaction](), list[Transaction]()
        for each in decided:
            (ended if cuts and self._can_end(by_key, each) else left).append(each)
        # Other brokers get the same file, and have to write the same records.
        given = request.offsets or {}
        # Logs that an earlier run cut are not cut again, and groups were past their ends.
        group_ends = {
            **found.earlier_ends,
            **given,
            **{key: ends[key] for key in (*cuts, *given) if key in ends},
        }
        groups = None
        if group_ends:
            producers = frozenset(each.producer_id for each in left if each.is_commit)
            groups = GroupEnds(group_ends, producers)
        again = {key: at for key, at in found.again.items() if at == cuts[key]}
        appended_from = [
            at if (at := again.get(replica.key)) is not None and each.end_offset > at else None
            for replica, each in zip(self._replicas, facts, strict=True)
        ]
        states = self._share_states(by_key, found, logs) if group_ends else {}
        shares = shares_to_write(
            states,
            {key for key in states if self._is_whole(key, by_key[key])},
            group_ends,
            given,
            self._cluster,
        )
        logs = self._with_appended(
            by_key, logs, cuts, ends_of(cuts, ended), groups, shares, appended_from
        )
        elsewhere, unknown = self._cluster.not_held(request.offsets or {})
        behind = self._behind(by_key, logs)
        return Rewind(
            directories=tuple(self._directory(each, logs) for each in request.directories),
            replicas=tuple(
                RewoundReplica(
                    each.directory,
                    each.partition,
                    each.key,
                    log,
                    each.cleaned_to,
                    has_appended=at is not None,
                    is_behind=number in behind,
                )
                for number, (each, log, at) in enumerate(
                    zip(self._replicas, logs, appended_from, strict=True)
                )
            ),
            ends={
                # What was deleted since counts for share groups: the cut may be before the start.
                key: min(end, states[key].end_offset) if key in states else end
                for key, end in ends.items()
            },
            again=tuple(sorted(again)),
            moved={
                key: first_cuts.get(key, believed[key].end_offset)
                for key, cut in cuts.items()
                if cut != first_cuts.get(key)
            },
            without_times=tuple(key for key, each in sorted(believed.items()) if each.lacks_times),
            open=is_open,
            ended=tuple(ended),
            left=tuple(left),
            in_part=tuple(in_part),
            lowered=tuple(self._lowered_offsets(logs)),
            shares=tuple(each for own in shares.values() for each in own),
            lost_shares=tuple(
                lost_shares(
                    (share for log in logs for share in log.shares),
                    states,
                    shares,
                    self._cluster,
                    are_all_given=request.offsets is None,
                )
            ),
            absent=self._cluster.absent(cuts.keys() - again.keys()),
            has_metadata=self._cluster.image is not None,
            later=self._later(),
            elsewhere=elsewhere,
            unknown=unknown,
        )

    def _cuts(
        self, by_key: Mapping[TopicPartition, Sequence[int]], lookback_ms: int | None
    ) -> _Cuts:
        """Find where logs are cut.

        Args:
            by_key: the numbers of the replicas of each partition.
            lookback_ms: transactions that ended earlier before the moment are left out; None
                leaves out none.
        """
        facts = self._facts(lookback_ms)
        again, earlier_ends = self._again(by_key, facts)
        first = {
            key: min(found)
            for key, numbers in by_key.items()
            if (found := [cut for n in numbers if (cut := facts[n].cut) is not None])
        }
        first |= {key: min(at, first.get(key, at)) for key, at in again.items()}
        believed = {}
        for key, numbers in by_key.items():
            own = (facts[n] for n in numbers)
            at = again.get(key)
            # As no earlier run had appended anything: that is removed, and appended on all.
            kept = (each for each in own if at is None or each.end_offset <= at)
            believed[key] = max(kept, key=lambda each: each.end_offset)
        transactions = find_transactions(
            {key: each.parts for key, each in believed.items() if each.parts},
            {key: each.coordinator for key, each in believed.items() if each.coordinator},
        )
        is_lowered = self._request.offsets is None
        cuts = lowered(first, transactions) if is_lowered else first
        return _Cuts(facts, believed, again, earlier_ends, first, cuts, transactions)

    def _again(
        self, by_key: Mapping[TopicPartition, Sequence[int]], facts: Sequence[LogFacts]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Find the logs to which an earlier run appended records, but not on all replicas.

        It was stopped, or given some of the log directories.

        Returns:
            Where these records begin, and the ends of logs to which they lower committed offsets.
        """
        numbers, splits = [], []
        for own in by_key.values():
            ends = sorted({facts[n].end_offset for n in own})
            for n in own:
                shorter = tuple(end for end in ends if end < facts[n].end_offset)
                if shorter:
                    numbers.append(n)
                    splits.append(self._earlier_run_split(n, shorter))
        found = run_job(EarlierRunJob(), splits, self._options) if splits else []
        starts = dict(zip(numbers, map(valid, found), strict=True))
        again, ends_then = dict[TopicPartition, int](), dict[TopicPartition, int]()
        for key, own in by_key.items():
            candidates = {end for n in own for end in starts.get(n, ())}
            for at in sorted(candidates):
                longer = [n for n in own if facts[n].end_offset > at]
                if all(at in starts[n] for n in longer):
                    again[key] = at
                    for n in longer:
                        for log, end in starts[n][at].items():
                            then = [end]
                            if key.topic == SHARE_STATE_TOPIC:
                                # Only the lowest end that explains their records is known.
                                then += [facts[x].end_offset for x in by_key.get(log, ())]
                            ends_then[log] = max(*then, ends_then.get(log, end))
                    break
        return again, ends_then

    def _earlier_run_split(self, number: int, ends: tuple[int, ...]) -> EarlierRunSplit:
        replica = self._replicas[number]
        return EarlierRunSplit(
            replica.partition.path,
            size_bytes=replica.load.size_bytes,
            label=replica.load.label,
            role=_ROLES.get(replica.key.topic, LogRole.DATA),
            load=replica.load,
            ends=ends,
            topics=self._cluster.topics if replica.key.topic == SHARE_STATE_TOPIC else {},
        )

    def _suffices(self, found: _Cuts) -> bool:
        """Whether no transaction can matter that was left out.

        One may, if a wrong clock cuts a log long before the moment.
        """
        time_ms = self._request.time_ms
        if time_ms is None:
            return True
        removed = (each.earliest_removed_ms for each in found.believed.values())
        earliest = min((each for each in removed if each is not None), default=time_ms)
        return earliest > time_ms - LOOKBACK_MS // 2 and all(
            cut >= found.believed[key].complete_from for key, cut in found.cuts.items()
        )

    # ---- Which replicas there are

    def _found(self) -> Iterator[_Replica]:
        request = self._request
        twice = partitions_twice(request.directories)
        for directory in request.directories:
            _require_usual(directory)
            for partition in directory.partitions:
                key = partition.topic_partition
                if partition.path in request.excluded or key is None:
                    continue
                if partition.is_0_7:
                    raise NotRewindableError(f"{partition.path}: a log of Kafka 0.7")
                if not is_loaded(partition):
                    continue
                if not directory.is_clean and self._is_remote(directory, key):
                    continue  # only its broker can recover it
                if partition.path in twice:
                    raise NotRewindableError(
                        f"{partition.path}: the partition has another directory,"
                        f" {twice[partition.path]}; only you can decide which one is right"
                    )
                settings = request.settings[directory.path]
                load = load_split(partition, directory, settings, now_ms=request.now_ms)
                load = request.large_content.split(load, directory.path)
                cleaned = (directory.checkpoints.cleaner_offsets or {}).get(key, 0)
                yield _Replica(directory, partition, key, load, cleaned)

    def _facts(self, lookback_ms: int | None) -> list[LogFacts]:
        splits = [
            FactsSplit(
                each.partition.path,
                size_bytes=each.partition.data_bytes,
                label=each.load.label,
                key=each.key,
                load=each.load,
                moment=self._moment(each.key, lookback_ms),
            )
            for each in self._replicas
        ]
        found = run_job(FactsJob(), splits, self._options)
        return [valid(each) for each in found]

    def _moment(self, key: TopicPartition, lookback_ms: int | None) -> Moment:
        time_ms = self._request.time_ms
        if time_ms is not None:
            since_ms = None if lookback_ms is None else time_ms - lookback_ms
            return Moment(time_ms=time_ms, since_ms=since_ms)
        assert self._request.offsets is not None
        return Moment(offset=self._request.offsets.get(key))

    def _is_remote(self, directory: LogDirectory, key: TopicPartition) -> bool:
        return self._request.settings[directory.path].topic(key.topic).remote_storage_enable

    def _refuse_remote_storage(self, cuts: Mapping[TopicPartition, int]) -> None:
        for each in self._replicas:
            if each.key in cuts and self._is_remote(each.directory, each.key):
                raise NotRewindableError(
                    f"{each.partition.path}: {REMOTE_STORAGE}; nothing was changed; leave it"
                    " unchanged with --exclude"
                )

    # ---- Cutting

    def _cut(
        self,
        by_key: Mapping[TopicPartition, Sequence[int]],
        facts: Sequence[LogFacts],
        cuts: Mapping[TopicPartition, int],
    ) -> list[RewoundLog]:
        splits = []
        for number, each in enumerate(self._replicas):
            cut = cuts.get(each.key)
            numbers = by_key[each.key]
            compared_to: tuple[int, ...] = ()
            if cut is not None and len(numbers) > 1:
                ends = {min(cut, facts[n].end_offset) for n in numbers}
                compared_to = tuple(sorted(ends))
            starts = (max(facts[n].start_offset, self._replicas[n].cleaned_to) for n in numbers)
            splits.append(
                self._split(number, cut, compared_from=max(starts), compared_to=compared_to)
            )
        return [valid(each) for each in run_job(RewindJob(), splits, self._options)]

    def _split(
        self,
        number: int,
        cut: int | None,
        *,
        compared_from: int = 0,
        compared_to: tuple[int, ...] = (),
        appended: Appended | None = None,
    ) -> RewindSplit:
        replica = self._replicas[number]
        is_read = cut is not None or appended is not None
        return RewindSplit(
            replica.partition.path,
            size_bytes=replica.partition.data_bytes if is_read else replica.load.size_bytes,
            label=replica.load.label,
            load=replica.load,
            cut=cut,
            time_ms=self._request.time_ms,
            compared_from=compared_from,
            compared_to=compared_to,
            appended=appended,
        )

    def _require_agreement(
        self,
        by_key: Mapping[TopicPartition, Sequence[int]],
        facts: Sequence[LogFacts],
        cuts: Mapping[TopicPartition, int],
        logs: Sequence[RewoundLog],
    ) -> None:
        """Refuse replicas that would not be the same up to the cut.

        One that ended before the cut stays shorter: it fetches what it lacks, as before.
        """
        for key, cut in sorted(cuts.items()):
            for one, other in itertools.combinations(by_key[key], 2):
                end = min(cut, facts[one].end_offset, facts[other].end_offset)
                is_same = logs[one].digests[end] == logs[other].digests[end]
                reach = [n for n in (one, other) if facts[n].end_offset >= cut]
                is_same &= len({logs[n].end_offset for n in reach}) <= 1
                is_same &= all(facts[n].start_offset <= max(cut, 0) for n in (one, other)) or (
                    facts[one].start_offset == facts[other].start_offset
                )
                if not is_same:
                    paths = [self._replicas[n].partition.path for n in (one, other)]
                    raise NotRewindableError(
                        f"{key}: its replicas {paths[0]} and {paths[1]} would not be the same up"
                        f" to offset {cut}; kdump diff shows where they differ; leave one of them"
                        " unchanged with --exclude"
                    )

    # ---- What is appended

    def _can_end(
        self, by_key: Mapping[TopicPartition, Sequence[int]], transaction: Transaction
    ) -> bool:
        """Whether all replicas of the logs of a transaction are there to get the same records."""
        assert transaction.log is not None
        prepared = transaction.prepared
        if prepared is None or not prepared.state.is_prepared:
            return False
        return all(
            self._is_whole(key, by_key[key]) if key in by_key else self._cluster.is_deleted(key)
            for key in {transaction.log, *transaction.added}
        )

    def _is_whole(self, key: TopicPartition, numbers: Sequence[int]) -> bool:
        """Whether all replicas of a partition are among the directories, as far as is known."""
        if any(self._is_remote(self._replicas[number].directory, key) for number in numbers):
            return False
        if self._cluster.image is None:
            return self._request.offsets is None
        return self._cluster.has_all(key)

    def _share_states(
        self,
        by_key: Mapping[TopicPartition, Sequence[int]],
        found: _Cuts,
        logs: Sequence[RewoundLog],
    ) -> LogShares:
        """Read what share groups had delivered, where logs are cut or ends of logs are given."""
        keys, splits = [], []
        for key, numbers in by_key.items():
            if key.topic != SHARE_STATE_TOPIC:
                continue
            later = [at for n in numbers if (at := found.facts[n].first_later) is not None]
            end = min([*later, *([found.cuts[key]] if key in found.cuts else [])], default=None)
            start = max(logs[n].after.log_start_offset for n in numbers)
            for n in numbers:
                replica = self._replicas[n]
                keys.append(key)
                splits.append(
                    ShareStatesSplit(
                        replica.partition.path,
                        size_bytes=replica.partition.data_bytes,
                        label=replica.load.label,
                        load=replica.load,
                        log_start_offset=start,
                        end=end,
                    )
                )
        results = run_job(ShareStatesJob(), splits, self._options) if splits else []
        return furthest(zip(keys, map(valid, results), strict=True))

    def _with_appended(
        self,
        by_key: Mapping[TopicPartition, Sequence[int]],
        logs: Sequence[RewoundLog],
        cuts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, Ends],
        groups: GroupEnds | None,
        shares: Mapping[TopicPartition, Sequence[WrittenShare]],
        again_from: Sequence[int | None],
    ) -> list[RewoundLog]:
        """The same, with transactions ended, and the offsets of groups lowered that lie beyond.

        Args:
            ends: of transactions, by log.
            groups: to lower committed offsets; None to leave them.
            shares: what share groups have delivered, by log.
            again_from: where the records of an earlier run begin, by number of the replica.
        """
        longest = {
            key: max((logs[n] for n in numbers), key=lambda each: each.end_offset)
            for key, numbers in by_key.items()
        }
        epochs = {
            key: latest_epoch(longest[key])
            for key in by_key
            if key.topic == TRANSACTION_STATE_TOPIC
        }
        numbers, splits = [], []
        for number, replica in enumerate(self._replicas):
            key = replica.key
            own_groups = groups if key.topic == OFFSETS_TOPIC else None
            at = again_from[number]
            own_shares = tuple(shares.get(key, ()))
            if key not in ends and own_groups is None and not own_shares and at is None:
                continue
            appended = Appended(
                longest[key].end_offset,
                ends.get(key, Ends()),
                epochs,
                own_groups,
                own_shares,
                at,
            )
            numbers.append(number)
            splits.append(self._split(number, cuts.get(key), appended=appended))
        result = [*logs]
        found = run_job(RewindJob(), splits, self._options, kind=JobKind.DECODE)
        for number, each in zip(numbers, found, strict=True):
            result[number] = valid(each)
        return result

    def _behind(
        self, by_key: Mapping[TopicPartition, Sequence[int]], logs: Sequence[RewoundLog]
    ) -> set[int]:
        """The replicas that lack what is appended to others, and that a controller may elect."""
        image = self._cluster.image
        found = set[int]()
        for key, numbers in by_key.items():
            end = max(logs[n].after.log_end_offset for n in numbers)
            if all(logs[n].after.log_end_offset == logs[n].end_offset for n in numbers):
                continue
            partition = None if image is None else image.partition(key)
            for n in numbers:
                node = self._replicas[n].directory.node_id
                may_lead = partition is not None and node in partition.in_sync
                is_live = self._replicas[n].partition.state is PartitionState.LIVE
                if logs[n].after.log_end_offset < end and may_lead and is_live:
                    found.add(n)
        return found

    def _lowered_offsets(self, logs: Sequence[RewoundLog]) -> Iterator[LoweredOffset]:
        seen = set[TopicPartition]()
        for replica, log in zip(self._replicas, logs, strict=True):
            if log.lowered and replica.key not in seen:
                seen.add(replica.key)
                yield from log.lowered

    # ---- Log directories

    def _directory(self, directory: LogDirectory, logs: Sequence[RewoundLog]) -> DirectoryRewind:
        own = [
            (replica, log)
            for replica, log in zip(self._replicas, logs, strict=True)
            if replica.directory is directory
        ]
        path = directory.path.local_path
        outcomes = {replica.key: log.after for replica, log in own}
        if directory.is_clean:
            # Loading what was closed cleanly changes nothing that matters.
            own = [(replica, log) for replica, log in own if log.is_changed]
        if not own:
            return DirectoryRewind(directory, TargetDirectory(path, (), {}))
        root = recovered_root(directory, outcomes)
        root |= _cut_lines(directory, {replica.key: log for replica, log in own})
        partitions = tuple(
            TargetPartition(replica.partition.path.local_path, log.after.files)
            for replica, log in own
            if any(not isinstance(each, Kept) for each in log.after.files.values())
        )
        return DirectoryRewind(directory, TargetDirectory(path, partitions, root))

    def _later(self) -> LaterMetadata | None:
        time_ms = self._request.time_ms
        if time_ms is None:
            return None
        return read_later_metadata(self._request.directories, time_ms)


def _require_usual(directory: LogDirectory) -> None:
    if directory.kind is DirectoryKind.LOG_DIRECTORY_0_7:
        raise KdumpError(f"{directory.path}: a log directory of Kafka 0.7; nothing was changed")
    for name in (*directory.unreadable, *directory.absent, *directory.refused):
        raise NotRewindableError(f"{directory.path / name}: cannot be listed; nothing was changed")


def _cut_lines(
    directory: LogDirectory, logs: Mapping[TopicPartition, RewoundLog]
) -> dict[str, TargetFile]:
    """The high watermarks and cleaner offsets, none of them beyond the end of a log that is cut.

    Follows ``UnifiedLog.truncateTo`` and ``LogCleanerManager.maybeTruncateCheckpoint``.
    """
    changed: dict[str, TargetFile] = {}
    for name in _CUT_LINES:
        known = directory.checkpoints.by_file_name()[name] or {}
        lines: dict[TopicPartition, int | None] = {
            key: log.after.log_end_offset
            for key, log in logs.items()
            if log.is_cut and known.get(key, -1) > log.after.log_end_offset
        }
        if any(log.is_cut for log in logs.values()):
            require_readable(directory, {name})
        if lines:
            changed |= with_lines(directory, name, lines)
    return changed


def _in_part(
    cuts: Mapping[TopicPartition, int], transactions: Sequence[Transaction]
) -> Iterator[Transaction]:
    """The committed transactions that given cuts keep only in part.

    Raises:
        NotRewindableError: a transaction would be open, and nobody would end it.
    """
    for transaction in transactions:
        problems = [*broken(cuts, transaction)]
        hanging = next((each for each in problems if each.hangs), None)
        if hanging is not None:
            raise NotRewindableError(_hanging(cuts, hanging))
        if problems and transaction.is_committed:
            yield transaction


def _hanging(cuts: Mapping[TopicPartition, int], found: Broken) -> str:
    for log, part in found.transaction.parts.items():
        if log in cuts and part.first < cuts[log] and (part.marker or 0) >= cuts[log]:
            return (
                f"{log}: offset {cuts[log]} is inside the transaction of producer"
                f" {part.producer_id} from {part.first} to {part.marker}, and its coordinator"
                f" would not end it again: give {part.first} or {(part.marker or 0) + 1}"
            )
    return (
        f"{found.log}: with these offsets, no coordinator would know the transaction of producer"
        f" {found.transaction.producer_id} that is open from offset {found.lowered} on: give"
        f" {found.lowered}"
    )


def _not_completed(
    cuts: Mapping[TopicPartition, int], transactions: Sequence[Transaction]
) -> tuple[tuple[Transaction, ...], tuple[Transaction, ...]]:
    """The transactions that are open, and those that were being committed or aborted."""
    is_open, decided = [], []
    for each in transactions:
        log = each.log
        if log is None or is_kept(cuts, log, each.completed):
            continue
        if is_kept(cuts, log, each.decided):
            decided.append(each)
        elif any(is_kept(cuts, log, offset) for offset in each.added.values()):
            is_open.append(each)
    return tuple(is_open), tuple(decided)
