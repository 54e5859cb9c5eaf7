"""What a partition of Kafka 0.7 becomes: what :mod:`kdump.repair.salvage.recover_0_7` computes.

Who only asks what kind of partition an outcome is of needs none of its rules.
"""

from __future__ import annotations

from msgspec import Struct

from kdump.broker.loader.load_report import LoadReport
from kdump.target.target_file import TargetFile


class Recovered07(Struct, frozen=True):
    """The target state of a partition of Kafka 0.7.

    Attributes:
        files: the target file of each log, by name.
        log_end_offset: byte position in the stream after the last message.
        report: what changes, for people.
    """

    files: dict[str, TargetFile]
    log_end_offset: int
    report: LoadReport
