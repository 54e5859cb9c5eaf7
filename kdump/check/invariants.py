"""The register of finding codes: what must hold, and how bad it is where it does not.

Each has one function that looks for it, a test that makes it fire, and a paragraph in the manual
(``kdump-verify``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdump.check.findings import Finding, Place, Severity


@dataclass(frozen=True, slots=True)
class Invariant:
    """Something that must hold.

    Attributes:
        code: of its findings.
        severity: of a finding, where whoever makes it does not know better.
        title: what is wrong where it does not hold, in a few words.
    """

    code: str
    severity: Severity
    title: str

    def broken(
        self,
        place: Place,
        what: str,
        *,
        expected: object | None = None,
        found: object | None = None,
        loss: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding that says that it does not hold at ``place``."""
        return Finding(
            code=self.code,
            severity=self.severity if severity is None else severity,
            place=place,
            what=what,
            expected=None if expected is None else str(expected),
            found=None if found is None else str(found),
            loss=loss,
        )


INVARIANTS: Final[dict[str, Invariant]] = {}
"""All of them by code, in the order of the manual."""


def _register(code: str, severity: Severity, title: str) -> Invariant:
    assert code not in INVARIANTS, f"two invariants have the code {code}"
    INVARIANTS[code] = invariant = Invariant(code, severity, title)
    return invariant


INFO, WARNING, ERROR, SEVERE = Severity

# ---- Batches of a segment's log ----

TORN_TAIL: Final = _register("torn-tail", ERROR, "the last batch is not whole")
ZERO_FILL: Final = _register("zero-fill", ERROR, "zeroes where a batch should be")
BATCH_LENGTH: Final = _register("batch-length", ERROR, "a length that no batch can have")
BATCH_CHECKSUM: Final = _register("batch-checksum", ERROR, "a checksum that does not hold")
BATCH_MAGIC: Final = _register("batch-magic", ERROR, "a format that Kafka does not know")
BATCH_HEADER: Final = _register("batch-header", ERROR, "a header that contradicts itself")
BATCH_OFFSET_ORDER: Final = _register(
    "batch-offset-order", ERROR, "offsets that go back or overlap"
)
BATCH_OUTSIDE_SEGMENT: Final = _register(
    "batch-outside-segment", ERROR, "offsets that belong into another segment"
)
BATCH_OFFSET_OVERFLOW: Final = _register(
    "batch-offset-overflow", WARNING, "offsets that the index of the segment cannot hold"
)
OFFSET_GAP: Final = _register("offset-gap", INFO, "offsets that are missing between batches")
BATCH_CODEC: Final = _register("batch-codec", ERROR, "records that cannot be decompressed")
BATCH_FILL: Final = _register("batch-fill", ERROR, "records that do not fill their batch")
BATCH_NOT_DECODED: Final = _register(
    "batch-not-decoded", INFO, "records that are larger than the limit"
)
RECORD_MALFORMED: Final = _register("record-malformed", ERROR, "a record that cannot be decoded")
RECORD_OFFSETS: Final = _register(
    "record-offsets", ERROR, "records that contradict the offsets or the count of their batch"
)
BATCH_MAX_TIMESTAMP: Final = _register(
    "batch-max-timestamp", ERROR, "a greatest timestamp that no record has"
)
FUTURE_TIMESTAMP: Final = _register("future-timestamp", INFO, "timestamps in the future")
LEADER_EPOCH_ORDER: Final = _register("leader-epoch-order", WARNING, "leader epochs that go back")
CONTROL_RECORD: Final = _register("control-record", ERROR, "a malformed control record")
PRODUCER_SEQUENCE_REPEAT: Final = _register(
    "producer-sequence-repeat", ERROR, "a producer's sequence that comes twice"
)
PRODUCER_SEQUENCE_GAP: Final = _register(
    "producer-sequence-gap", WARNING, "a producer's sequence that is missing"
)

# ---- Indexes ----

INDEX_MISSING: Final = _register("index-missing", WARNING, "a segment without its index")
INDEX_SIZE: Final = _register("index-size", ERROR, "an index that ends in part of an entry")
INDEX_PADDING: Final = _register("index-padding", WARNING, "an index that was not trimmed")
OFFSET_INDEX_ORDER: Final = _register(
    "offset-index-order", ERROR, "entries of the offset index that do not rise"
)
OFFSET_INDEX_POSITION: Final = _register(
    "offset-index-position", ERROR, "an entry of the offset index that leads to no batch"
)
OFFSET_INDEX_OFFSET: Final = _register(
    "offset-index-offset", ERROR, "an entry of the offset index that leads to another batch"
)
TIME_INDEX_ORDER: Final = _register(
    "time-index-order", ERROR, "entries of the time index that do not rise"
)
TIME_INDEX_ENTRY: Final = _register(
    "time-index-entry", ERROR, "an entry of the time index that contradicts the batches"
)
TIME_INDEX_LAST: Final = _register(
    "time-index-last", WARNING, "a time index that ends below the greatest timestamp"
)
TRANSACTION_INDEX_VERSION: Final = _register(
    "transaction-index-version", ERROR, "an entry of the transaction index that Kafka cannot read"
)
TRANSACTION_INDEX_MISSING: Final = _register(
    "transaction-index-missing", ERROR, "aborted transactions without a transaction index"
)
TRANSACTION_INDEX_MISMATCH: Final = _register(
    "transaction-index-mismatch",
    ERROR,
    "a transaction index that contradicts the abort markers",
)

# ---- Producer snapshots and leader epochs ----

SNAPSHOT_CHECKSUM: Final = _register(
    "snapshot-checksum", WARNING, "a producer snapshot whose checksum does not hold"
)
SNAPSHOT_MALFORMED: Final = _register(
    "snapshot-malformed", WARNING, "a producer snapshot that cannot be read"
)
SNAPSHOT_STATE: Final = _register(
    "snapshot-state", ERROR, "a producer snapshot that contradicts the log"
)
SNAPSHOT_STRAY: Final = _register(
    "snapshot-stray", INFO, "a producer snapshot where no segment begins"
)
SNAPSHOT_MISSING: Final = _register("snapshot-missing", WARNING, "no producer snapshot")
EPOCHS_MALFORMED: Final = _register(
    "epochs-malformed", SEVERE, "a leader epoch checkpoint that cannot be read"
)
EPOCHS_MISSING: Final = _register(
    "epochs-missing", WARNING, "leader epochs that the checkpoint does not have"
)
EPOCHS_MISMATCH: Final = _register(
    "epochs-mismatch", ERROR, "a leader epoch checkpoint that contradicts the batches"
)

# ---- Partitions ----

SEGMENT_GAP: Final = _register("segment-gap", INFO, "offsets that are missing between segments")
LEFTOVER_SWAP: Final = _register("leftover-swap", WARNING, "a swap that was not finished")
SWAP_INCOMPLETE: Final = _register(
    "swap-incomplete", SEVERE, "a swap that lacks records of the segment that it replaces"
)
SWAP_DROPPED: Final = _register(
    "swap-dropped", SEVERE, "an unfinished file that alone has records, and is deleted"
)
LEFTOVER_CLEANED: Final = _register(
    "leftover-cleaned", WARNING, "cleaned files that never took their place"
)
LEFTOVER_DELETED: Final = _register("leftover-deleted", INFO, "files that wait to be deleted")
LEFTOVER_TEMPORARY: Final = _register("leftover-temporary", INFO, "a file that was being written")
INDEX_ORPHAN: Final = _register("index-orphan", WARNING, "an index without its log")
PARTITION_METADATA_MISSING: Final = _register(
    "partition-metadata-missing", SEVERE, "no partition.metadata"
)
PARTITION_METADATA_MALFORMED: Final = _register(
    "partition-metadata-malformed", SEVERE, "a partition.metadata that cannot be read"
)
PARTITION_METADATA_MISMATCH: Final = _register(
    "partition-metadata-mismatch", SEVERE, "a topic id that the cluster's metadata contradicts"
)
PARTITION_METADATA_OTHER_TOPIC: Final = _register(
    "partition-metadata-other-topic", SEVERE, "a topic id that is another topic's"
)
PARTITION_NOT_ASSIGNED: Final = _register(
    "partition-not-assigned", SEVERE, "a partition that the cluster has on other nodes"
)
LOAD_REFUSED: Final = _register("load-refused", SEVERE, "a partition that a broker refuses to load")
FOREIGN_FILE: Final = _register("foreign-file", INFO, "a file that is not a broker's")
KDUMP_FILE: Final = _register("kdump-file", INFO, "a file that kdump keeps here")

# ---- Log directories ----

CHECKPOINT_MALFORMED: Final = _register(
    "checkpoint-malformed", SEVERE, "an offset checkpoint that cannot be read"
)
CHECKPOINT_EMPTY: Final = _register("checkpoint-empty", INFO, "an offset checkpoint without lines")
CHECKPOINT_WITHOUT_PARTITION: Final = _register(
    "checkpoint-without-partition", INFO, "a checkpoint's line about a partition that is not there"
)
RECOVERY_POINT_BEYOND_END: Final = _register(
    "recovery-point-beyond-end", ERROR, "a recovery point behind the end of the log"
)
LOG_START_BEYOND_END: Final = _register(
    "log-start-beyond-end", SEVERE, "a log start offset behind the end of the log"
)
META_PROPERTIES_MALFORMED: Final = _register(
    "meta-properties-malformed", SEVERE, "a meta.properties that cannot be read"
)
META_PROPERTIES_MISSING: Final = _register("meta-properties-missing", SEVERE, "no meta.properties")
META_PROPERTIES_INCOMPLETE: Final = _register(
    "meta-properties-incomplete", SEVERE, "a meta.properties without a node or cluster id"
)
META_PROPERTIES_MISMATCH: Final = _register(
    "meta-properties-mismatch", SEVERE, "directories of different clusters or brokers"
)
DIRECTORY_ID_TWICE: Final = _register(
    "directory-id-twice", SEVERE, "two directories with one directory id"
)
DIRECTORY_ID_RESERVED: Final = _register(
    "directory-id-reserved", SEVERE, "a directory id that Kafka uses for something else"
)
BOOTSTRAP_MALFORMED: Final = _register(
    "bootstrap-malformed", SEVERE, "a bootstrap.checkpoint that cannot be read"
)
PARTITION_TWICE: Final = _register(
    "partition-twice", SEVERE, "a partition that is in two directories"
)
DIRECTORY_REFUSED: Final = _register(
    "directory-refused", SEVERE, "a directory that is not named as a partition"
)
DIRECTORY_MISNAMED: Final = _register(
    "directory-misnamed", SEVERE, "a directory whose name no partition can have"
)
TOPIC_CONFIG_REFUSED: Final = _register(
    "topic-config-refused", SEVERE, "a topic's configuration that Kafka refuses"
)
DIRECTORY_DELETE: Final = _register("directory-delete", INFO, "a partition that waits for deletion")
DIRECTORY_FUTURE: Final = _register(
    "directory-future", INFO, "a partition on its way to this directory"
)
DIRECTORY_STRAY: Final = _register(
    "directory-stray", INFO, "a partition that a broker has set aside"
)
FILE_UNREADABLE: Final = _register("file-unreadable", SEVERE, "a file that cannot be read")
FILE_PERMISSIONS: Final = _register(
    "file-permissions", WARNING, "files that the directory's owner cannot read or write"
)
SYMBOLIC_LINK: Final = _register("symbolic-link", INFO, "a symbolic link")
CLEAN_SHUTDOWN_MALFORMED: Final = _register(
    "clean-shutdown-malformed", WARNING, "a marker of a clean stop that cannot be read"
)
