"""Messages of brokers and clients about log directories, and which findings are behind them."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

ANYTHING: Final = "…"
"""Stands in a message for what varies: a path, an offset, a name."""
_SHORTEST_QUERY: Final = 8
_EXCEPTION: Final = re.compile(r"\w+Exception\b")


class BrokerMessage(Struct, frozen=True):
    """A message of Kafka.

    Attributes:
        text: as Kafka writes it, with :data:`ANYTHING` for what varies.
        meaning: what it says about the log directory, in a sentence.
        codes: of the findings that ``kdump verify`` reports then; empty if it is about none.
        advice: what to do first, in a sentence.
    """

    text: str
    meaning: str
    codes: tuple[str, ...]
    advice: str

    def is_in(self, line: str) -> bool:
        """Whether a line of a log has the message or its exception, or people typed part of it."""
        parts = [re.escape(each) for each in self.text.split(ANYTHING)]
        if re.search(".*?".join(parts), line, re.IGNORECASE | re.DOTALL):
            return True
        if any(each in self.meaning for each in _EXCEPTION.findall(line)):
            return True
        typed = line.strip().casefold()
        return len(typed) >= _SHORTEST_QUERY and typed in self.text.casefold()


def messages_in(line: str) -> list[BrokerMessage]:
    """The messages that a line of a broker's or client's log has."""
    return [each for each in BROKER_MESSAGES if each.is_in(line)]


_DRY_RUN: Final = "kdump recover --dry-run LOG_DIR says what the next start deletes."
_SALVAGE: Final = (
    "On a copy from before the start, kdump recover --policy salvage keeps the valid batches after"
    " the damage; on this directory they are gone."
)
_IDENTITY: Final = "kdump identity LOG_DIR... names the directory that is wrong, and --repair."

BROKER_MESSAGES: Final = (
    BrokerMessage(
        "Record is corrupt (stored crc = ",
        "A batch was read whose checksum does not match: CorruptRecordException in consumers and"
        " followers.",
        ("batch-checksum",),
        "Runbook: A consumer is stuck at an offset.",
    ),
    BrokerMessage(
        "Record batch is corrupt (the size ",
        "A batch was read that is smaller than its header: CorruptRecordException in consumers and"
        " followers.",
        ("batch-length", "zero-fill"),
        "Runbook: A consumer is stuck at an offset.",
    ),
    BrokerMessage(
        "is out of range for partition ",
        "A consumer asks for an offset that the log does not have: OffsetOutOfRangeException. It"
        " was deleted, or the log ends earlier than before.",
        ("log-start-beyond-end", "recovery-point-beyond-end", "segment-gap"),
        "Runbook: A consumer is stuck at an offset.",
    ),
    BrokerMessage(
        "There is no leader for this topic-partition",
        "No replica in sync runs: LeaderNotAvailableException in clients, until one returns or is"
        " elected.",
        (),
        "Runbook: Which replica should lead?",
    ),
    BrokerMessage(
        "Exiting Kafka due to fatal exception",
        "The broker does not start, or ends; the rest of the line or an earlier one says why.",
        (),
        "Runbook: The pod crash-loops.",
    ),
    BrokerMessage(
        "Found invalid messages in log segment …at byte offset ",
        "Recovery found a damaged batch, and is about to truncate the log before it.",
        ("batch-checksum", "batch-length", "torn-tail", "zero-fill"),
        _SALVAGE,
    ),
    BrokerMessage(
        "Corruption found in segment …truncating to offset ",
        "Recovery truncates the log at a damaged batch, and deletes all later segments.",
        ("batch-checksum", "batch-length", "torn-tail", "zero-fill"),
        _SALVAGE,
    ),
    BrokerMessage(
        "Found invalid offset during recovery. Deleting the corrupt segment",
        "A batch of the segment has offsets below the segment's own: the whole segment is deleted.",
        ("batch-outside-segment", "batch-offset-order"),
        _SALVAGE,
    ),
    BrokerMessage(
        "Deleting all segments because logEndOffset (",
        "The checkpointed log start lies after the end of the log: the broker deletes the log.",
        ("log-start-beyond-end",),
        _SALVAGE,
    ),
    BrokerMessage(
        "Found a corrupted index file corresponding to log file ",
        "An index is damaged, and the broker rebuilds it; no record is lost.",
        ("transaction-index-mismatch", "transaction-index-version"),
        "Nothing; if it returns at each start, kdump verify LOG_DIR finds the disk's other damage.",
    ),
    BrokerMessage(
        "Could not find offset index file corresponding to log file ",
        "An offset index is missing, and the broker rebuilds it; no record is lost.",
        ("index-missing",),
        "kdump rebuild-index LOG_DIR does the same before the start.",
    ),
    BrokerMessage(
        "Corrupt time index found, time index file (",
        "A time index ends before it begins.",
        ("time-index-order",),
        "kdump rebuild-index LOG_DIR",
    ),
    BrokerMessage(
        "Found an orphaned index file ",
        "An index has no log, and the broker deletes it.",
        ("index-orphan",),
        "kdump verify LOG_DIR, to see whether a log is missing.",
    ),
    BrokerMessage(
        "Unexpected aborted transaction version ",
        "A transaction index has an entry that this broker cannot read.",
        ("transaction-index-version",),
        "kdump verify --repair LOG_DIR rebuilds it.",
    ),
    BrokerMessage(
        "Failed to load producer snapshot from '",
        "A producer snapshot is damaged, and the broker reads the log instead.",
        ("snapshot-malformed", "snapshot-checksum"),
        "Nothing, if the log is valid: kdump verify LOG_DIR.",
    ),
    BrokerMessage(
        "Error occurred while reading recovery-point-offset-checkpoint file of directory ",
        "The checkpoint of recovery points is damaged: all logs are recovered from their start.",
        ("checkpoint-malformed",),
        _DRY_RUN,
    ),
    BrokerMessage(
        "Error occurred while reading log-start-offset-checkpoint file of directory ",
        "The checkpoint of log starts is damaged: deleted records come back.",
        ("checkpoint-malformed",),
        "kdump checkpoint show LOG_DIR shows what is left of it; kdump checkpoint set sets lines.",
    ),
    BrokerMessage(
        "since no clean shutdown file was found",
        "After an unclean shutdown: the broker recovers what may not have been flushed.",
        (),
        f"Nothing. {_DRY_RUN}",
    ),
    BrokerMessage(
        "is not in the form of topic-partition",
        "A directory in the log directory is not a partition, and the broker does not start.",
        ("directory-refused",),
        "kdump ls LOG_DIR names it, and says what to do.",
    ),
    BrokerMessage(
        "Duplicate log directories for …are found in both ",
        "A partition is in two log directories, and the broker does not start.",
        ("partition-twice",),
        "kdump diff compares both copies; move the one that ends earlier elsewhere.",
    ),
    BrokerMessage(
        "Attempting to recover abandoned future log for ",
        "A move to another disk was not finished: the copy becomes the log, whatever it has.",
        ("log-replaced", "directory-future-alone"),
        "kdump verify LOG_DIR..., before the next start, says which records only the log has.",
    ),
    BrokerMessage(
        "Found stray log dir ",
        "The metadata does not assign this partition to this broker, which renames it to -stray.",
        ("partition-not-assigned", "partition-metadata-mismatch", "partition-metadata-missing"),
        "Runbook: Everything became -stray.",
    ),
    BrokerMessage(
        "marked stray and renamed to ",
        "The broker has renamed a partition to -stray, and will not load it again.",
        ("directory-stray",),
        "Runbook: Everything became -stray.",
    ),
    BrokerMessage(
        "Invalid cluster.id in: ",
        "A log directory belongs to another cluster.",
        ("meta-properties-mismatch",),
        _IDENTITY,
    ),
    BrokerMessage(
        "Stored node id …doesn't match previous node id ",
        "A log directory belongs to another broker.",
        ("meta-properties-mismatch",),
        _IDENTITY,
    ),
    BrokerMessage(
        "Duplicate directory ID ",
        "One log directory is a copy of another one, or has its meta.properties.",
        ("directory-id-twice",),
        _IDENTITY,
    ),
    BrokerMessage(
        "Invalid reserved directory ID ",
        "A log directory has an id that Kafka reserves.",
        ("directory-id-reserved",),
        _IDENTITY,
    ),
    BrokerMessage(
        "was not specified in the v1 file: ",
        "meta.properties lacks the id of the cluster.",
        ("meta-properties-incomplete",),
        _IDENTITY,
    ),
    BrokerMessage(
        "No readable meta.properties files found.",
        "No log directory says to which broker it belongs.",
        ("meta-properties-missing", "meta-properties-malformed"),
        _IDENTITY,
    ),
    BrokerMessage(
        "Failed to acquire lock on file .lock in ",
        "Another process uses the log directory: another broker, or kdump.",
        (),
        "kdump info LOG_DIR names the process.",
    ),
    BrokerMessage(
        "Stopping serving logs in dir ",
        "A disk failed, and its partitions are offline: KafkaStorageException in clients.",
        ("file-unreadable",),
        "Runbook: One disk of the broker is dying.",
    ),
    BrokerMessage(
        "Shutdown broker because all log dirs in ",
        "The last disk failed, and the broker ended.",
        ("file-unreadable",),
        "Runbook: One disk of the broker is dying.",
    ),
    BrokerMessage(
        "Marking its partition (…as uncleanable",
        "The log cleaner met damage, and leaves the partition alone until the broker starts again.",
        ("batch-checksum", "batch-codec", "record-malformed"),
        "kdump compact --dry-run --explain LOG_DIR",
    ),
    BrokerMessage(
        "contains future timestamp(s), making it ineligible to be deleted",
        "A record's timestamp lies in the future, so that retention keeps its segment.",
        ("future-timestamp",),
        "kdump retain --dry-run --explain --topic '*' LOG_DIR shows which segments, and since"
        " when.",
    ),
)
"""All known messages, in the order in which a start and its consumers meet them."""
