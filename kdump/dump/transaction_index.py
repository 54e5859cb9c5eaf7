"""A ``.txnindex`` file as the official tool's text, and as rows.

Follows ``DumpLogSegments.dumpTxnIndex``, which fails at an entry with an unknown version before it
prints any. Here such entries are left out, and a problem names the first.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.problems import DumpProblem
from kdump.dump.report import DumpReport
from kdump.formats import transaction_index
from kdump.formats.kafka_versions import KAFKA_4_3_1
from kdump.formats.transaction_index import TransactionIndex


def dump(file: DumpedFile, report: DumpReport) -> Iterator[str]:
    """Print a transaction index.

    Yields:
        Text for standard output, in pieces.

    Raises:
        OSError: when the file cannot be read.
    """
    index = transaction_index.decode(file.path.read())
    for entry in index.entries:
        if entry.is_known_to(KAFKA_4_3_1):
            yield (
                f"version: {entry.version_in(KAFKA_4_3_1)} producerId: {entry.producer_id}"
                f" firstOffset: {entry.first_offset} lastOffset: {entry.last_offset}"
                f" lastStableOffset: {entry.last_stable_offset}\n"
            )
    _report_damage(file, index, report)


def _report_damage(file: DumpedFile, index: TransactionIndex, report: DumpReport) -> None:
    if file.base_offset_problem is not None:
        report.problem(file.base_offset_problem)
    for damage in (
        transaction_index.version_problem(index),
        transaction_index.trailing_problem(index),
    ):
        if damage is not None:
            report.problem(DumpProblem.from_format_error(file.path, damage))


def rows(file: DumpedFile, report: DumpReport) -> Iterator[dict[str, object]]:
    """Give each entry as a row, whatever its version.

    Raises:
        OSError: when the file cannot be read.
    """
    index = transaction_index.decode(file.path.read())
    for entry in index.entries:
        yield {"type": "aborted_transaction", **asdict(entry)}
    _report_damage(file, index, report)
