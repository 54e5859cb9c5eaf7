"""Parameter types that several commands share."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kdump.cli.options.option_group import Command, options
from kdump.clock import current_time_ms
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import LOCAL_DISK, local
from kdump.storage.place_names import is_bare_archive
from kdump.storage.places import (
    log_directories_in,
    parse_location,
    parse_locations,
    repository_of,
    require_local,
    with_log_directories,
)

if TYPE_CHECKING:
    from uuid import UUID

    from kdump.storage.location import Location

Value = TypeVar("Value")
Written = bool | Callable[[Mapping[str, Any]], bool]

_SIZE: Final = re.compile(r"(\d+) *(?:([KMGTP])(?:iB|B)?|B)?", re.IGNORECASE | re.ASCII)
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MAX_LONG: Final = 2**63 - 1
_LONGEST: Final = len("-9223372036854775808")
_POWERS: Final = "KMGTP"


def parse_integer(text: str) -> int | None:
    """Parse a number in decimal ASCII digits, as Kafka writes it; None if it is anything else.

    Leading zeroes, blanks, underscores, a plus sign, digits of other scripts, and numbers of more
    than 64 bits are refused.
    """
    if len(text) > _LONGEST or not _INTEGER.fullmatch(text) or text == "-0":
        return None
    number = int(text)
    return number if -_MAX_LONG - 1 <= number <= _MAX_LONG else None


class NotParsedError(Exception):
    """A word is not what an option takes; the message quotes it and says what would be."""


class WordParameter(click.ParamType[Value]):
    """A value that is parsed from one word."""

    def parse(self, text: str) -> Value:
        """Parse the word.

        Raises:
            NotParsedError: it is not such a value.
        """
        raise NotImplementedError

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, or parsed before
        try:
            return self.parse(value)
        except NotParsedError as problem:
            self.fail(str(problem), param, ctx)


class NumberParameter(WordParameter[int]):
    """A whole number, as :func:`parse_integer` accepts it, within bounds."""

    name = "number"

    def __init__(self, least: int = 0, most: int = _MAX_LONG) -> None:
        self._least = least
        self._most = most

    def parse(self, text: str) -> int:
        number = parse_integer(text)
        if number is None or not self._least <= number <= self._most:
            raise NotParsedError(
                f"{text!r} is not a whole number from {self._least} to {self._most}"
            )
        return number


_FIRST_RELEASE_MS: Final = 1_293_840_000_000
"""The beginning of 2011, the year of the first release."""


class TimeParameter(WordParameter[int]):
    """A time in epoch milliseconds, given as such or in ISO 8601 (UTC if it has no zone)."""

    name = "time"

    def parse(self, text: str) -> int:
        time_ms = parse_integer(text)
        if time_ms is None:
            time_ms = _moment_ms(text)
        if time_ms is None:
            raise NotParsedError(
                f"{text!r} is not a time: give ISO 8601, such as 2026-11-21T05:00:00Z, or epoch "
                f"milliseconds"
            )
        return time_ms


class MomentParameter(TimeParameter):
    """A time at which there was a cluster. One in seconds would be taken for a time in 1970."""

    def parse(self, text: str) -> int:
        time_ms = super().parse(text)
        if time_ms < _FIRST_RELEASE_MS:
            from kdump.cli.output.value_text import format_timestamp

            raise NotParsedError(
                f"{text!r} is {format_timestamp(time_ms)}, before the first release of Kafka: give"
                " ISO 8601, or epoch milliseconds (not seconds)"
            )
        return time_ms


def _moment_ms(text: str) -> int | None:
    """Parse a time in ISO 8601; None if it is anything else, a bare number included."""
    if not text.isascii() or not text[:1].isdigit() or not set(text) - set("0123456789_"):
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


class SizeParameter(WordParameter[int]):
    """A number of bytes: ``1073741824``, ``1g``, ``512 MiB``; units are powers of 1024."""

    name = "size"

    def parse(self, text: str) -> int:
        match = _SIZE.fullmatch(text)
        number = None if match is None else parse_integer(match[1])
        if match is None or number is None:
            raise NotParsedError(f"{text!r} is not a size such as 512MiB or 1g")
        power = _POWERS.index(match[2].upper()) + 1 if match[2] else 0
        size_bytes = number * int(1024**power)
        if size_bytes > _MAX_LONG:
            raise NotParsedError(f"{text!r} is more than {_MAX_LONG} bytes")
        return size_bytes


class PropertyParameter(WordParameter[tuple[str, str]]):
    """A property and its value, as ``KEY=VALUE``."""

    name = "key=value"

    def parse(self, text: str) -> tuple[str, str]:
        key, separator, content = text.partition("=")
        if not separator or not key.strip():
            raise NotParsedError(f"{text!r} is not KEY=VALUE")
        return key.strip(), content


TIME = TimeParameter()
MOMENT = MomentParameter()
OFFSET = NumberParameter()
INT32 = NumberParameter(most=2**31 - 1)
"""What Kafka keeps in four bytes: ids of nodes, numbers of partitions, leader epochs."""
SIZE = SizeParameter()


def now_option(what: str) -> Callable[[Command], Command]:
    """Add ``--now``, as the argument ``now_ms`` in epoch milliseconds.

    Args:
        what: what the command does as of that time, up to and with the word TIME.
    """
    return click.option(
        "--now",
        "now_ms",
        type=MOMENT,
        default=current_time_ms,
        help=f"{what}: ISO 8601 or epoch milliseconds (default: now).",
    )


def max_record_bytes_option(command: Command) -> Command:
    """Add ``--max-record-bytes``, as ``largest_record_bytes``."""
    return click.option(
        "--max-record-bytes",
        "largest_record_bytes",
        type=SIZE,
        default=_usual_largest_record_bytes,
        help="Decode records of compressed batches up to SIZE (default: 16MiB, or 16 times the"
        " size of the batch if that is more).",
    )(command)


def _usual_largest_record_bytes() -> int:
    from kdump.formats.record_batch import LARGEST_RECORD_BYTES

    return LARGEST_RECORD_BYTES


def all_replicas_option(verb: str) -> Callable[[Command], Command]:
    """Add ``--all-replicas`` to a command that else takes one replica of each partition.

    Args:
        verb: what the command does with records, as in "Search".
    """
    return click.option(
        "--all-replicas",
        is_flag=True,
        help=f"{verb} every replica of a partition, not only the most advanced one.",
    )


class LocationParameter(click.Path):
    """A file or directory, as a location: of this machine, in an archive, or in an object store.

    One that is written must be on a local disk. Others are refused by their names, before an
    archive is unpacked or a store is asked.
    """

    def __init__(self, *, written: Written = False, is_one: bool = True, **options: Any) -> None:
        """Make a type.

        Args:
            written: whether the command writes there; where options decide, a function of the
                parameters before it, which must be eager to come before it.
            is_one: whether a snapshot of several log directories is refused; otherwise whoever
                takes the value replaces it by these.
            options: as :class:`click.Path` has them.
        """
        super().__init__(**options)
        self._written = written
        self._is_one = is_one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        if self._is_written({} if ctx is None else ctx.params):
            require_local(text)
        if is_bare_archive(text) and local(text).kind() is EntryKind.FILE:
            self.fail(
                f"{text} is an archive: name a directory in it, such as {text}!/data/kafka,"
                f" or all of it, {text}!/",
                param,
                ctx,
            )
        location = parse_location(text)
        if location.storage == LOCAL_DISK:
            super().convert(value, param, ctx)
        else:
            keep_snapshots([location])
        log_dirs = log_directories_in(location) if self._is_one else None
        if log_dirs is not None:
            names = ", ".join(map(str, log_dirs)) or "none"
            self.fail(f"{text} has several log directories: name one: {names}", param, ctx)
        return location

    def _is_written(self, given: Mapping[str, Any]) -> bool:
        return self._written if isinstance(self._written, bool) else self._written(given)


def keep_snapshots(locations: Iterable[Location]) -> None:
    """Keep the snapshots that locations are in from being removed until the command ends.

    Raises:
        RepositoryError: another kdump removes snapshots from a repository.
    """
    repositories = filter(None, dict.fromkeys(map(repository_of, locations)))
    for repository in repositories:
        if repository.storage == LOCAL_DISK:
            from kdump.repository.repository_locks import locked_to_read

            context = click.get_current_context().find_root()
            context.with_resource(locked_to_read(repository.local_path))


def parsed_paths(texts: Iterable[str]) -> list[Location]:
    """The locations that arguments without a type name; see :class:`LocationParameter`.

    Raises:
        KdumpError, OSError: as :func:`~kdump.storage.places.parse_location`.
    """
    found = parse_locations(texts)
    keep_snapshots(found)
    return found


def _log_directories(
    ctx: click.Context, param: click.Parameter, paths: tuple[Location, ...]
) -> tuple[Location, ...]:
    return tuple(with_log_directories(paths))


class DirectoryIdParameter(WordParameter["tuple[Location, UUID | None]"]):
    """A log directory and its id, ``LOG_DIR=ID``; None for ``LOG_DIR=new``."""

    name = "directory_id"

    def parse(self, text: str) -> tuple[Location, UUID | None]:
        from kdump.formats.uuids import parse_uuid

        path, _, word = text.rpartition("=")
        directory_id = None if word == "new" else parse_uuid(word)
        if not path or (directory_id is None and word != "new"):
            raise NotParsedError(f"{text!r} is not LOG_DIR=ID or LOG_DIR=new")
        return local(path), directory_id


def paths_argument(metavar: str, *, written: Written = False) -> Callable[[Command], Command]:
    """Add one or more paths, as the argument ``paths``; they are opened later.

    Args:
        metavar: what each is, in the help.
        written: as :class:`LocationParameter` has it.
    """
    return click.argument(
        "paths",
        metavar=f"{metavar}...",
        nargs=-1,
        required=True,
        type=LocationParameter(readable=False, written=written, is_one=False),
        callback=_log_directories,
    )


directories_argument: Final = click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=LocationParameter(file_okay=False, readable=False, is_one=False),
    callback=_log_directories,
)


def edge_options(verb: str) -> Callable[[Command], Command]:
    """Add the options that say at which offset or time to start and stop."""
    return options(
        click.option("--from-offset", type=OFFSET, metavar="OFFSET", help="Start at this offset."),
        click.option("--to-offset", type=OFFSET, metavar="OFFSET", help="Stop before this offset."),
        click.option(
            "--from-time",
            "from_time_ms",
            type=TIME,
            help=f"{verb} only records from this time on.",
        ),
        click.option(
            "--to-time",
            "to_time_ms",
            type=TIME,
            help=f"{verb} only records before this time.",
        ),
    )
