"""The options of the data source ``kafka-log``: those of Spark's Kafka source, and more.

Options for reaching brokers and for handling their failures are accepted and have no effect. Any
other unknown name is an error, so that typing errors are noticed.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, Self

from msgspec import Struct

from kdump.errors import UsageProblem
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.payloads.payload_format import PayloadFormat
from kdump.storage.place_names import is_store_uri
from kdump.tables.kafka_log import java_pattern
from kdump.tables.kafka_log.columns import (
    COLUMNS,
    SourceColumn,
    columns_named,
    default_columns,
)
from kdump.tables.kafka_log.java_pattern import PatternError
from kdump.tables.kafka_log.path_patterns import paths_of
from kdump.tables.kafka_log.pushed_filters import is_whole
from kdump.tables.kafka_log.selected_offsets import (
    BOUND_OPTIONS,
    AtTime,
    Bound,
    Bounds,
    Edge,
    SelectedTopics,
)

DEFAULT_CORRUPT_COLUMN: Final = "_corrupt_record"
"""The default of Spark's own sources (``spark.sql.columnNameOfCorruptRecord``)."""

_EARLIEST: Final = -2
_LATEST: Final = -1
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")
_LARGEST: Final = 2**63 - 1
"""The largest offset and timestamp: both have 64 bits."""


class Mode(enum.Enum):
    """What to do about damaged bytes."""

    FAILFAST = "FAILFAST"
    """Reading fails."""
    DROPMALFORMED = "DROPMALFORMED"
    """They are skipped, and a warning counts them."""
    PERMISSIVE = "PERMISSIVE"
    """Each range of them becomes a row with only its position and what is wrong."""


class Replicas(enum.Enum):
    """Which replicas of a partition to read where several are named."""

    ONE = "one"
    """The most advanced one."""
    ALL = "all"
    """Each of them."""


class SourceOptions(Struct, frozen=True):
    """What to read, and how.

    Attributes:
        paths: of log directories, partitions and segments.
        start: where to start in each.
        end: before what to end in each.
        is_committed: leave out aborted transactions, and everything from the first open one on.
        with_control: return control records, too.
        columns: to return if no schema selects any.
        corrupt_column: name of the column that says what is wrong.
        min_partitions: the least number of tasks, if there is enough to read.
        fail_on_data_loss: whether an offset that is named by number must be in the log.
        key_format: how keys become text; None if they are only UTF-8.
        value_format: the same of values.
        schemas: where schemas are; empty to look for the registry's topic beside the data.
        remote: where remote segments of tiered storage are; None to read local ones only.
        private_key: decrypts them; None without one.
    """

    paths: tuple[str, ...]
    topics: SelectedTopics
    start: Bounds
    end: Bounds
    is_committed: bool
    with_control: bool
    mode: Mode
    columns: tuple[SourceColumn, ...]
    corrupt_column: str
    min_partitions: int | None
    fail_on_data_loss: bool = False
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    key_format: PayloadFormat | None = None
    value_format: PayloadFormat | None = None
    schemas: tuple[str, ...] = ()
    remote: str | None = None
    private_key: str | None = None
    replicas: Replicas = Replicas.ONE


_ISOLATION_LEVEL: Final = "kafka.isolation.level"
_CORRUPT_COLUMN: Final = "columnNameOfCorruptRecord"
_STARTING_TIMES: Final = "startingOffsetsByTimestamp"
_STRATEGY: Final = f"{_STARTING_TIMES}Strategy"
MOST_OFFSETS: Final = "maxOffsetsPerTrigger"
"""An option of streams alone."""
TABLE_OPTION: Final = "table"
OPTIONS: Final = (
    TABLE_OPTION,
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    *BOUND_OPTIONS,
    "includeHeaders",
    "includeControlRecords",
    _ISOLATION_LEVEL,
    "mode",
    _CORRUPT_COLUMN,
    "columns",
    "minPartitions",
    "replicas",
    "failOnDataLoss",
    _STRATEGY,
    "maxRecordBytes",
    "keyFormat",
    "valueFormat",
    "schemas",
    "remote",
    "privateKey",
)
"""All options of records that have an effect."""
_WITHOUT_EFFECT: Final = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
    }
)
_OF_CATALOG: Final = frozenset({"owner", "provider"})
"""Options that Spark's catalog adds for ``CREATE TABLE``; it does not keep the path."""
_WITHOUT_EFFECT_PREFIX: Final = "kafka."


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse options; the case of their names does not matter.

    Raises:
        UsageProblem: an option is unknown, has an invalid value or conflicts with another.
    """
    return RecordParser(given_options(_with_effect(options), OPTIONS, "kafka-log")).parse()


def _with_effect(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if not _is_without_effect(name)}


def _is_without_effect(name: str) -> bool:
    lowered = name.lower()
    is_known = lowered == _ISOLATION_LEVEL
    return lowered in _WITHOUT_EFFECT or (
        lowered.startswith(_WITHOUT_EFFECT_PREFIX) and not is_known
    )


def given_options(options: Mapping[str, str], known: Sequence[str], whose: str) -> dict[str, str]:
    """Options by their lower-case names.

    Args:
        options: as given.
        known: the names of those that the table has.
        whose: the table, for messages.

    Raises:
        UsageProblem: an option is unknown.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    if given.keys() >= _OF_CATALOG:
        raise UsageProblem(
            "kafka-log supports only temporary views: Spark's tables do not keep its paths"
        )
    for name in sorted(given.keys() - {name.lower() for name in known}):
        raise UsageProblem(f"{whose} has no option {name!r}; it has {', '.join(sorted(known))}")
    return given


class OptionParser:
    """Parses the options that several tables have, which are given by lower-case name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str | None:
        return self.given.get(name.lower())

    def refuse(self, name: str, expected: str) -> NoReturn:
        raise UsageProblem(f"option {name} of kafka-log is {self.text(name)!r}, not {expected}")

    def flag(self, name: str, default: str = "false") -> bool:
        text = (self.text(name) or default).lower()
        if text not in ("true", "false"):
            self.refuse(name, "true or false")
        return text == "true"

    def json_object(self, name: str) -> dict[str, Any] | None:
        text = self.text(name)
        if text is None:
            return None
        expected = 'such as {"orders":{"0":23}}'
        try:
            parsed = json.loads(text)
        except ValueError:
            self.refuse(name, expected)
        if not isinstance(parsed, dict):
            self.refuse(name, expected)
        return parsed

    def paths(self) -> tuple[str, ...]:
        """The paths: ``path`` for one; ``paths`` has several as JSON (``DataFrameReader.load``).

        Raises:
            UsageProblem: there is none, or one with patterns matches nothing.
            OSError: a directory cannot be listed.
        """
        found = self.array_of_paths("paths") if self.text("paths") is not None else []
        if (path := self.text("path")) is not None:
            found.append(path)
        if not found:
            raise UsageProblem("kafka-log needs a path: a log directory, a partition or a segment")
        matched = [each for path in _as_mounted(found) for each in paths_of(path)]
        return tuple(dict.fromkeys(matched))

    def array_of_paths(self, name: str) -> list[str]:
        """Several paths, as JSON."""
        try:
            parsed = json.loads(self.text(name) or "")
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, list) or not all(isinstance(each, str) for each in parsed):
            self.refuse(name, "a JSON array of paths")
        return parsed

    def place(self, name: str) -> str | None:
        """One path."""
        text = self.text(name)
        return None if text is None else _as_mounted([text])[0]

    def topics(self) -> SelectedTopics:
        chosen = [n for n in ("subscribe", "subscribePattern", "assign") if self.text(n)]
        if len(chosen) > 1:
            raise UsageProblem(
                f"options {' and '.join(chosen)} of kafka-log are mutually exclusive"
            )
        match chosen:
            case ["subscribe"]:
                names = (self.text("subscribe") or "").split(",")
                topics = frozenset(name.strip() for name in names if name.strip())
                if not topics:
                    self.refuse("subscribe", "topics, separated by commas")
                return SelectedTopics(names=topics)
            case ["subscribePattern"]:
                pattern = self.text("subscribePattern") or ""
                try:
                    java_pattern.check(pattern)
                except PatternError as problem:
                    self.refuse("subscribePattern", f"a Java regular expression: {problem}")
                return SelectedTopics(pattern=pattern)
            case ["assign"]:
                return SelectedTopics(partitions=self.assigned())
        return SelectedTopics()

    def assigned(self) -> frozenset[TopicPartition]:
        parsed = self.json_object("assign") or {}
        found = set[TopicPartition]()
        for topic, partitions in parsed.items():
            if not isinstance(partitions, list):
                self.refuse("assign", 'such as {"orders":[0,1]}')
            for partition in partitions:
                if not is_whole(partition):
                    self.refuse("assign", 'such as {"orders":[0,1]}')
                found.add(TopicPartition(topic, partition))
        return frozenset(found)

    def time(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch("-?[0-9]{1,19}", text) or abs(int(text)) > _LARGEST:
            self.refuse(name, "a time in epoch milliseconds")
        return int(text)

    def positive(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or int(text) < 1:
            self.refuse(name, "a number of at least 1")
        return int(text)


class RecordParser(OptionParser):
    """Parses the options of records, or those of them that batches have, too."""

    def parse(self) -> SourceOptions:
        mode = self.mode()
        corrupt_column = self.corrupt_column()
        if (self.text(_STRATEGY) or "latest").lower() != "latest":
            self.refuse(_STRATEGY, "latest: a partition without such a record gives nothing")
        return SourceOptions(
            paths=self.paths(),
            topics=self.topics(),
            start=self.bounds("starting", Edge.EARLIEST),
            end=self.bounds("ending", Edge.LATEST),
            is_committed=self.is_committed(),
            with_control=self.flag("includeControlRecords"),
            mode=mode,
            columns=self.columns(corrupt_column if mode is Mode.PERMISSIVE else None),
            corrupt_column=corrupt_column,
            min_partitions=self.positive("minPartitions"),
            fail_on_data_loss=self.flag("failOnDataLoss", default="true"),
            largest_record_bytes=self.positive("maxRecordBytes") or LARGEST_RECORD_BYTES,
            key_format=self.payload_format("keyFormat"),
            value_format=self.payload_format("valueFormat"),
            schemas=self.schemas(),
            remote=self.place("remote"),
            private_key=self.place("privateKey"),
            replicas=self.replicas(),
        )

    def replicas(self) -> Replicas:
        try:
            return Replicas((self.text("replicas") or Replicas.ONE.value).lower())
        except ValueError:
            self.refuse("replicas", " or ".join(each.value for each in Replicas))

    def payload_format(self, name: str) -> PayloadFormat | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return PayloadFormat(text.lower())
        except ValueError:
            self.refuse(name, ", ".join(PayloadFormat))

    def schemas(self) -> tuple[str, ...]:
        """Where schemas are: one path, or several as JSON."""
        text = self.text("schemas")
        if text is None:
            return ()
        if self.text("keyFormat") is None and self.text("valueFormat") is None:
            raise UsageProblem("option schemas has no effect without keyFormat or valueFormat")
        return _as_mounted(self.array_of_paths("schemas") if text.startswith("[") else [text])

    def bounds(self, which: str, default: Edge, *, may_cross: bool = False) -> Bounds:
        """A bound from the first of three options that is given, as in Spark's source.

        Args:
            may_cross: whether a partition may begin at its end.
        """
        if (time_ms := self.time(f"{which}Timestamp")) is not None:
            return Bounds(AtTime(time_ms))
        by_timestamp = f"{which}OffsetsByTimestamp"
        if (times := self.by_partition(by_timestamp, -_LARGEST)) is not None:
            return Bounds(default, {key: AtTime(value) for key, value in times.items()})
        offsets = f"{which}Offsets"
        text = self.text(offsets)
        if text is None or text.strip().lower() == default.value:
            return Bounds(default)
        if text.strip().lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
            self.refuse(offsets, f"{default.value} or offsets by topic and partition as JSON")
        found = self.by_partition(offsets, _EARLIEST) or {}
        crossing = _LATEST if default is Edge.EARLIEST else _EARLIEST
        if crossing in found.values() and not may_cross:
            self.refuse(offsets, f"without {crossing}, as in Spark's source: nothing would be read")
        return Bounds(default, {key: _bound(offset) for key, offset in found.items()})

    def by_partition(self, name: str, least: int) -> dict[TopicPartition, int] | None:
        parsed = self.json_object(name)
        if parsed is None:
            return None
        found: dict[TopicPartition, int] = {}
        for topic, numbers in parsed.items():
            if not isinstance(numbers, dict):
                self.refuse(name, 'such as {"orders":{"0":23}}')
            for partition, number in numbers.items():
                if not _NUMBER.fullmatch(partition) or not is_whole(number):
                    self.refuse(name, 'such as {"orders":{"0":23}}')
                if not least <= number <= _LARGEST:
                    self.refuse(name, f"numbers from {least} to {_LARGEST}")
                found[TopicPartition(topic, int(partition))] = number
        return found

    def is_committed(self) -> bool:
        level = (self.text(_ISOLATION_LEVEL) or "read_uncommitted").lower()
        if level not in ("read_uncommitted", "read_committed"):
            self.refuse(_ISOLATION_LEVEL, "read_uncommitted or read_committed")
        return level == "read_committed"

    def mode(self) -> Mode:
        try:
            return Mode((self.text("mode") or Mode.FAILFAST.value).upper())
        except ValueError:
            self.refuse("mode", ", ".join(mode.value for mode in Mode))

    def corrupt_column(self) -> str:
        name = self.text(_CORRUPT_COLUMN) or DEFAULT_CORRUPT_COLUMN
        if name.lower() in {column.name.lower() for column in COLUMNS}:
            self.refuse(_CORRUPT_COLUMN, "a name that no other column has")
        return name

    def columns(self, corrupt_column: str | None) -> tuple[SourceColumn, ...]:
        text = self.text("columns")
        if text is None:
            return default_columns(
                with_headers=self.flag("includeHeaders"), corrupt_column=corrupt_column
            )
        names = [name.strip() for name in text.split(",") if name.strip()]
        return columns_named(names, corrupt_column)


class StreamParser(RecordParser):
    """Parses the options that a stream of records has, and a query has not."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Take options.

        Raises:
            UsageProblem: one is unknown, or only for queries.
        """
        known = (*OPTIONS, MOST_OFFSETS)
        parser = cls(given_options(_with_effect(options), known, "a stream of kafka-log"))
        for name in BOUND_OPTIONS:
            if name.startswith("ending") and parser.text(name) is not None:
                raise UsageProblem(
                    f"a stream of kafka-log has no option {name}: trigger(availableNow=True) ends"
                    " at what is there"
                )
        return parser

    def without_start(self) -> dict[str, str]:
        """The options that a query has, too, without where it starts."""
        left_out = {each.lower() for each in (*BOUND_OPTIONS, MOST_OFFSETS)}
        return {name: value for name, value in self.given.items() if name not in left_out}

    def start(self) -> Bounds:
        """Where the stream begins: at the end of each log, if no option says so.

        A partition that is not named where others are begins where its log does, as one does that
        is created later.
        """
        offsets = self.text("startingOffsets")
        has_time = any(self.text(each) for each in ("startingTimestamp", _STARTING_TIMES))
        if not has_time and (offsets or Edge.LATEST.value).strip().lower() == Edge.LATEST.value:
            return Bounds(Edge.LATEST)
        return self.bounds("starting", Edge.EARLIEST, may_cross=True)


def _as_mounted(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths as the file system has them, and URIs of object stores.

    Raises:
        UsageProblem: one is of another kind of storage.
    """
    found = tuple(re.sub("^file:/+", "/", each) for each in paths)
    for each in found:
        if re.match(r"\w+://", each) and not is_store_uri(each):
            scheme = each.partition("://")[0]
            raise UsageProblem(
                f"{scheme}:// is not a place that kafka-log reads: give a path, or a URI with s3,"
                " gs, abfs or hdfs"
            )
    return found


def _bound(offset: int) -> Bound:
    if offset == _EARLIEST:
        return Edge.EARLIEST
    return Edge.LATEST if offset == _LATEST else offset
