"""A case of the bench: a measured command, what it is compared with, and its limits."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


class Program(enum.Enum):
    """A program that kdump is compared with; the value is its name in the table."""

    DUMP_TOOL = "kafka-dump-log"
    DUMP_AND_GREP = "kafka-dump-log | grep"
    """``--print-data-log`` of a segment, into ``grep``; takes the segment and the pattern."""
    LOADER = "Kafka's loading"
    """``LogManager``, which loads and recovers a log directory, and shuts down."""
    CLEANER = "Kafka's cleaner"
    """``Cleaner``, which loads and compacts one partition after the other."""
    CHECKSUMS = "crc32c alone"
    COPY_AND_SUM = "cp, sha256sum"
    """``cp -r`` of a directory, then ``sha256sum`` of each copy; takes both directories."""
    WALK = "bare walk"
    """``os.scandir`` of a directory and all below it, and the status of each file."""
    KDUMP = "kdump verify"
    KDUMP_COMPACT = "kdump compact --dry-run"
    KDUMP_IN_PROCESS = "kdump, --engine local"
    KDUMP_ON_SPARK = "kdump, --engine spark"
    KDUMP_ON_HALF = "kdump on half"
    KDUMP_ON_A_QUARTER = "kdump on a quarter"
    KDUMP_ON_AN_EIGHTH = "kdump on an eighth"
    """The same command over a part of the input, to check that time grows linearly."""

    @property
    def is_kdump(self) -> bool:
        """Whether it is kdump with other arguments."""
        return self.name.startswith("KDUMP")


@dataclass(frozen=True, slots=True)
class Other:
    """A command that kdump is compared with.

    Attributes:
        program: the program.
        arguments: its arguments; ``{data}`` stands for the folder with the data.
        stdin: its standard input; ``{data}`` likewise.
        before: call in a module of data that runs before each run, and is not measured.
    """

    program: Program
    arguments: tuple[str, ...]
    stdin: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """Data that a case needs.

    Attributes:
        call: call in a module of data that makes it, if it does not exist.
        gb: its size on disk.
        folder: the folder that has most of it; what is linked to a folder costs nothing more.
    """

    call: str
    gb: float
    folder: str


@dataclass(frozen=True, slots=True)
class Case:
    """A case: a command and its limits.

    Attributes:
        name: name of the line in the table.
        kdump: arguments of kdump; ``{data}`` stands for the folder with the data.
        others: commands to compare with; limits are multiples of the fastest.
        data: what it needs.
        before: call in a module of data that runs before each run of kdump, and is not measured.
        copies_gb: what kdump and the others write at most while they run.
        ratio: limit of kdump's time, as a multiple of the other command's.
        more_seconds: added to that limit.
        seconds: limit of kdump's time.
        cpu_seconds: limit of the processor time of kdump and all that it starts.
        peak_mb: limit of the resident memory of any process of kdump.
        worker_peak_mb: limit for any Python process that works for kdump; takes one more run.
    """

    name: str
    kdump: tuple[str, ...]
    others: tuple[Other, ...] = ()
    data: tuple[Data, ...] = ()
    before: str = ""
    copies_gb: float = 0
    ratio: float | None = None
    more_seconds: float = 0
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_mb: float | None = 150.0
    worker_peak_mb: float | None = None


@dataclass(frozen=True, slots=True)
class RateCase:
    """A case of a program that measures its own rate.

    Attributes:
        name: name of the line in the table.
        words: the program in this folder and its arguments; ``{data}`` stands for the folder with
            the data. Its last line begins with the rate.
        data: what it needs.
        at_least: limit of the rate.
        unit: of the rate: millions of records per second of one core, or what else is said here.
    """

    name: str
    words: tuple[str, ...]
    data: tuple[Data, ...]
    at_least: float | None = None
    unit: str = "M records/s a core"


SPARK: Final = ("--engine", "spark", "--master", "local[2]")
LOCAL: Final = ("--engine", "local")
NOW_MS: Final = "1800000000000"


def log(folder: str) -> str:
    """Return the first log of a folder."""
    return f"{{data}}/{folder}/{0:020d}.log"


def shape_of(shape: str) -> str:
    """Convert ``name, MiB, records per batch, values, codec`` to a call that makes the shape."""
    name, mib, records, values, codec = shape.split(",")
    return f"SegmentShape({name!r}, {int(mib) * MIB}, {records}, {values!r}, {codec!r})"


def segment(shape: str) -> Data:
    """Return one segment of a shape."""
    return Data(f"make_segment({shape_of(shape)}, folder)", _gb_of(shape), shape.partition(",")[0])


def partitions(name: str, shape: str, count: int, *, is_clean: bool) -> Data:
    """Return a log directory with so many partitions, all links to one segment of a shape."""
    call = f"make_partitions({name!r}, {shape_of(shape)}, {count}, folder, is_clean={is_clean})"
    return Data(call, _gb_of(shape), shape.partition(",")[0])


def _gb_of(shape: str) -> float:
    return int(shape.split(",")[1]) * MIB / 1e9


def compactable(
    name: str,
    segment_bytes: int,
    codec: str = "none",
    *,
    partitions: int = 1,
    keys: int = 200_000,
) -> Data:
    """Return a log directory with partitions of eight inactive segments with random keys."""
    shape = f"SegmentShape('', {segment_bytes}, 97, 'short', {codec!r}, keys={keys})"
    call = f"make_compactable({name!r}, {shape}, 8, {partitions}, folder)"
    return Data(call, 8 * segment_bytes / 1e9, name)


MANY_KEYS: Final = compactable("many-keys", 960 << 20, keys=100_000_000)
"""78 million records with 54 million keys."""


def linked(name: str, source: str, partitions: int) -> Data:
    """Return a log directory with so many partitions, all links to the first of a source."""
    call = f"link_partitions({name!r}, {source!r}, {partitions}, folder)"
    return Data(call, 0.005 * partitions, name)


def copied(folder: str, suffix: str) -> str:
    """Return the call that copies a log directory, with links to its logs."""
    return f"copy_partitions({folder!r}, '{folder}-{suffix}', folder)"


def loading(folder: str) -> Other:
    """Make the comparison with a broker that loads a copy of a log directory."""
    request = ("whole", f"{{data}}/{folder}-to-load", NOW_MS, "86400000")
    return Other(
        Program.LOADER,
        (),
        "\t".join((*request, "index.interval.bytes=4096")) + "\n",
        copied(folder, "to-load"),
    )


def in_part(program: Program, *words: str) -> tuple[Other, ...]:
    """Make the comparison with kdump over a part of the input."""
    return (Other(program, words),)
