"""The invariants: what must hold, how bad it is if it does not, and what repairs it.

One table. Each code has one function that looks for it, a test that makes it fire, and a paragraph
in ``explanations.rst``. Codes are stable: programs decide by them.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

from kdump.check.findings import Finding, Place, Severity
from kdump.formats.errors import FormatError


class Remedy(enum.Enum):
    """What ``kdump verify --repair`` does about a finding, as people read it.

    Only the name of what is done is here. :mod:`kdump.jobs.verify.minimal_repair` does it.
    """

    NONE = "nothing"
    """It cannot be derived from anything, or there is nothing to do. The paragraph says which."""
    DATA = (
        "after an unclean shutdown, truncate the log as a starting broker would; with --policy"
        " salvage, keep every valid batch"
    )
    SALVAGE = "with --policy salvage, keep the records that a broker would delete"
    GAPS = "with --policy salvage, note that the offsets are known to be missing"
    INDEXES = "rebuild the indexes of the segment from its batches"
    SNAPSHOTS = "rebuild the producer snapshots from the batches"
    LEADER_EPOCHS = "rebuild leader-epoch-checkpoint from the batches"
    LEFTOVERS = "finish or delete the leftover files, as kdump resolve does"
    CHECKPOINTS = "rebuild the offset checkpoints from the logs"
    PARTITION_METADATA = "write partition.metadata, if the cluster's metadata has the topic"
    IDENTITY = "write meta.properties from another directory of the broker"
    CAUSE = "repair what the other findings about the partition name"


class Invariant(Struct, frozen=True):
    """Something that must hold.

    Attributes:
        severity: of its findings, unless the check that makes one knows better.
        meaning: what is wrong if it does not hold, in a few words.
    """

    code: str
    severity: Severity
    meaning: str
    remedy: Remedy

    def finding(
        self,
        place: Place,
        what: str,
        *,
        expected: object | None = None,
        found: object | None = None,
        loss: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding: the invariant does not hold at ``place``."""
        return Finding(
            code=self.code,
            severity=self.severity if severity is None else severity,
            place=place,
            what=what,
            expected=None if expected is None else str(expected),
            found=None if found is None else str(found),
            loss=loss,
        )

    def of_error(
        self,
        place: Place,
        error: FormatError,
        what: str | None = None,
        *,
        loss: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding about malformed bytes: what was expected and found, the error says."""
        expected, found = error.expected, error.found
        return self.finding(
            place, what or error.what, expected=expected, found=found, loss=loss, severity=severity
        )


INVARIANTS: Final[dict[str, Invariant]] = {}
"""All invariants by code, in the order of the manual."""


def _register(code: str, severity: Severity, meaning: str, remedy: Remedy) -> Invariant:
    assert code not in INVARIANTS, f"two invariants have the code {code}"
    INVARIANTS[code] = invariant = Invariant(code, severity, meaning, remedy)
    return invariant


INFO, WARNING, ERROR, SEVERE = Severity

# ---- Batches of a segment's log ----

TORN_TAIL: Final = _register("torn-tail", ERROR, "the last batch is incomplete", Remedy.DATA)
ZERO_FILL: Final = _register("zero-fill", ERROR, "zeroes where a batch should be", Remedy.DATA)
BATCH_LENGTH: Final = _register(
    "batch-length", ERROR, "a batch length that is impossible", Remedy.DATA
)
BATCH_CHECKSUM: Final = _register(
    "batch-checksum", ERROR, "a batch checksum that does not match", Remedy.DATA
)
BATCH_MAGIC: Final = _register(
    "batch-magic", ERROR, "a batch format that Kafka does not know", Remedy.DATA
)
BATCH_HEADER: Final = _register(
    "batch-header", ERROR, "a batch header that contradicts itself", Remedy.DATA
)
BATCH_FEW_OFFSETS: Final = _register(
    "batch-few-offsets", INFO, "a batch with more records than offsets", Remedy.NONE
)
BATCH_OFFSET_ORDER: Final = _register(
    "batch-offset-order", ERROR, "batch offsets that go back or overlap", Remedy.DATA
)
BATCH_OUTSIDE_SEGMENT: Final = _register(
    "batch-outside-segment", ERROR, "batch offsets that belong to another segment", Remedy.DATA
)
LOG_MISNAMED: Final = _register(
    "log-misnamed", ERROR, "a name for which a broker begins an empty segment", Remedy.SALVAGE
)
BATCH_OFFSET_OVERFLOW: Final = _register(
    "batch-offset-overflow", WARNING, "batch offsets too large for the segment's index", Remedy.DATA
)
OFFSET_GAP: Final = _register("offset-gap", INFO, "offsets missing between batches", Remedy.GAPS)
BATCH_CODEC: Final = _register(
    "batch-codec", ERROR, "records that cannot be decompressed", Remedy.NONE
)
BATCH_FILL: Final = _register(
    "batch-fill", ERROR, "records that do not fill their batch", Remedy.NONE
)
BATCH_NOT_DECODED: Final = _register(
    "batch-not-decoded", INFO, "records larger than the decoding limit", Remedy.NONE
)
RECORD_MALFORMED: Final = _register(
    "record-malformed", ERROR, "a record that cannot be decoded", Remedy.NONE
)
RECORD_OFFSETS: Final = _register(
    "record-offsets",
    ERROR,
    "records that contradict the offsets or the count of their batch",
    Remedy.NONE,
)
BATCH_MAX_TIMESTAMP: Final = _register(
    "batch-max-timestamp", ERROR, "a maximum timestamp that no record has", Remedy.NONE
)
FUTURE_TIMESTAMP: Final = _register(
    "future-timestamp", INFO, "timestamps in the future", Remedy.NONE
)
LEADER_EPOCH_ORDER: Final = _register(
    "leader-epoch-order", WARNING, "leader epochs that go back", Remedy.NONE
)
CONTROL_RECORD: Final = _register(
    "control-record", ERROR, "a malformed control record", Remedy.NONE
)
PRODUCER_SEQUENCE_REPEAT: Final = _register(
    "producer-sequence-repeat", ERROR, "a producer sequence number that occurs twice", Remedy.NONE
)
PRODUCER_SEQUENCE_GAP: Final = _register(
    "producer-sequence-gap", WARNING, "producer sequence numbers that are missing", Remedy.NONE
)

# ---- Indexes ----

INDEX_MISSING: Final = _register(
    "index-missing", WARNING, "a segment without its index", Remedy.INDEXES
)
INDEX_SIZE: Final = _register(
    "index-size", ERROR, "an index that ends in a partial entry", Remedy.INDEXES
)
INDEX_PADDING: Final = _register(
    "index-padding", WARNING, "an index that was not trimmed", Remedy.INDEXES
)
OFFSET_INDEX_ORDER: Final = _register(
    "offset-index-order", ERROR, "offset index entries out of order", Remedy.INDEXES
)
OFFSET_INDEX_POSITION: Final = _register(
    "offset-index-position", ERROR, "an offset index entry that points to no batch", Remedy.INDEXES
)
OFFSET_INDEX_OFFSET: Final = _register(
    "offset-index-offset",
    ERROR,
    "an offset index entry that points to the wrong batch",
    Remedy.INDEXES,
)
TIME_INDEX_ORDER: Final = _register(
    "time-index-order", ERROR, "time index entries out of order", Remedy.INDEXES
)
TIME_INDEX_ENTRY: Final = _register(
    "time-index-entry", ERROR, "a time index entry that contradicts the batches", Remedy.INDEXES
)
TIME_INDEX_LAST: Final = _register(
    "time-index-last",
    WARNING,
    "a time index that ends before the maximum timestamp",
    Remedy.INDEXES,
)
TRANSACTION_INDEX_VERSION: Final = _register(
    "transaction-index-version",
    ERROR,
    "a transaction index entry that Kafka cannot read",
    Remedy.INDEXES,
)
TRANSACTION_INDEX_MISSING: Final = _register(
    "transaction-index-missing",
    ERROR,
    "aborted transactions without a transaction index",
    Remedy.INDEXES,
)
TRANSACTION_INDEX_MISMATCH: Final = _register(
    "transaction-index-mismatch",
    ERROR,
    "a transaction index that contradicts the abort markers",
    Remedy.INDEXES,
)

# ---- Producer snapshots and leader epochs ----

SNAPSHOT_CHECKSUM: Final = _register(
    "snapshot-checksum",
    WARNING,
    "a producer snapshot whose checksum does not match",
    Remedy.SNAPSHOTS,
)
SNAPSHOT_MALFORMED: Final = _register(
    "snapshot-malformed", WARNING, "an unreadable producer snapshot", Remedy.SNAPSHOTS
)
SNAPSHOT_STATE: Final = _register(
    "snapshot-state", ERROR, "a producer snapshot that contradicts the log", Remedy.SNAPSHOTS
)
SNAPSHOT_STRAY: Final = _register(
    "snapshot-stray", INFO, "a producer snapshot where no segment begins", Remedy.NONE
)
SNAPSHOT_MISSING: Final = _register(
    "snapshot-missing", WARNING, "no producer snapshot", Remedy.SNAPSHOTS
)
EPOCHS_MALFORMED: Final = _register(
    "epochs-malformed", SEVERE, "an unreadable leader-epoch-checkpoint", Remedy.LEADER_EPOCHS
)
EPOCHS_MISSING: Final = _register(
    "epochs-missing",
    WARNING,
    "leader epochs missing from leader-epoch-checkpoint",
    Remedy.LEADER_EPOCHS,
)
EPOCHS_MISMATCH: Final = _register(
    "epochs-mismatch",
    ERROR,
    "a leader-epoch-checkpoint that contradicts the batches",
    Remedy.LEADER_EPOCHS,
)

# ---- Partitions ----

SEGMENT_GAP: Final = _register("segment-gap", INFO, "offsets missing between segments", Remedy.GAPS)
LEFTOVER_SWAP: Final = _register(
    "leftover-swap", WARNING, "an unfinished segment replacement (.swap)", Remedy.LEFTOVERS
)
SWAP_INCOMPLETE: Final = _register(
    "swap-incomplete",
    SEVERE,
    "a .swap that lacks records of the segment it replaces",
    Remedy.SALVAGE,
)
SWAP_DROPPED: Final = _register(
    "swap-dropped", SEVERE, "an unfinished file with records that no segment has", Remedy.SALVAGE
)
LEFTOVER_CLEANED: Final = _register(
    "leftover-cleaned", WARNING, "unfinished output of the log cleaner (.cleaned)", Remedy.LEFTOVERS
)
LEFTOVER_DELETED: Final = _register(
    "leftover-deleted", INFO, "files waiting to be deleted (.deleted)", Remedy.NONE
)
LEFTOVER_TEMPORARY: Final = _register(
    "leftover-temporary", INFO, "a file that was never finished", Remedy.NONE
)
INDEX_ORPHAN: Final = _register(
    "index-orphan", WARNING, "an index without its log", Remedy.LEFTOVERS
)
PARTITION_METADATA_MISSING: Final = _register(
    "partition-metadata-missing", SEVERE, "no partition.metadata", Remedy.PARTITION_METADATA
)
PARTITION_METADATA_MALFORMED: Final = _register(
    "partition-metadata-malformed",
    SEVERE,
    "an unreadable partition.metadata",
    Remedy.PARTITION_METADATA,
)
PARTITION_METADATA_MISMATCH: Final = _register(
    "partition-metadata-mismatch",
    SEVERE,
    "a topic id that the cluster's metadata does not have",
    Remedy.NONE,
)
PARTITION_METADATA_OTHER_TOPIC: Final = _register(
    "partition-metadata-other-topic",
    SEVERE,
    "the topic id of another topic",
    Remedy.PARTITION_METADATA,
)
PARTITION_NOT_ASSIGNED: Final = _register(
    "partition-not-assigned",
    SEVERE,
    "a partition that the cluster assigns to other nodes",
    Remedy.NONE,
)
PARTITION_MISSING: Final = _register(
    "partition-missing",
    SEVERE,
    "a partition that the cluster assigns to the log directory, without a directory",
    Remedy.NONE,
)
STRAY_ASSIGNED: Final = _register(
    "stray-assigned",
    SEVERE,
    "a -stray partition that is assigned to the broker, whose log is in no given directory",
    Remedy.NONE,
)
LOAD_REFUSED: Final = _register(
    "load-refused", SEVERE, "a partition that a broker refuses to load", Remedy.CAUSE
)
LOAD_LOSS: Final = _register(
    "load-loss", SEVERE, "records that a starting broker would lose or hide", Remedy.DATA
)
LOG_REPLACED: Final = _register(
    "log-replaced",
    SEVERE,
    "a log that a starting broker deletes in favour of the copy on another disk",
    Remedy.NONE,
)
FOREIGN_FILE: Final = _register("foreign-file", INFO, "a file that no broker wrote", Remedy.NONE)
KDUMP_FILE: Final = _register("kdump-file", INFO, "a file that kdump keeps", Remedy.NONE)

# ---- Log directories ----

CHECKPOINT_MALFORMED: Final = _register(
    "checkpoint-malformed", SEVERE, "an unreadable offset checkpoint", Remedy.CHECKPOINTS
)
CHECKPOINT_EMPTY: Final = _register(
    "checkpoint-empty", INFO, "an offset checkpoint without entries", Remedy.NONE
)
CHECKPOINT_WITHOUT_PARTITION: Final = _register(
    "checkpoint-without-partition", INFO, "a checkpoint entry for a missing partition", Remedy.NONE
)
CLEANER_LINE_MISPLACED: Final = _register(
    "cleaner-line-misplaced",
    ERROR,
    "a line in cleaner-offset-checkpoint about a log in another directory",
    Remedy.CHECKPOINTS,
)
RECOVERY_POINT_BEYOND_END: Final = _register(
    "recovery-point-beyond-end",
    ERROR,
    "a recovery point past the end of the log",
    Remedy.CHECKPOINTS,
)
RECOVERY_POINT_BEFORE_END: Final = _register(
    "recovery-point-before-end",
    WARNING,
    "a log that goes on after the recovery point of a clean shutdown",
    Remedy.NONE,
)
LOG_START_BEYOND_END: Final = _register(
    "log-start-beyond-end", SEVERE, "a log start offset past the end of the log", Remedy.CHECKPOINTS
)
LOG_START_CONTRADICTION: Final = _register(
    "log-start-contradiction",
    SEVERE,
    "leader epochs that begin before the log start offset",
    Remedy.LEADER_EPOCHS,
)
LOG_START_LOST: Final = _register(
    "log-start-lost",
    ERROR,
    "an empty log-start-offset-checkpoint although records were deleted",
    Remedy.CHECKPOINTS,
)
FIRST_SEGMENT_MISSING: Final = _register(
    "first-segment-missing", WARNING, "the first segments of a log are missing", Remedy.NONE
)
META_PROPERTIES_MALFORMED: Final = _register(
    "meta-properties-malformed", SEVERE, "an unreadable meta.properties", Remedy.IDENTITY
)
META_PROPERTIES_MISSING: Final = _register(
    "meta-properties-missing", SEVERE, "no meta.properties", Remedy.IDENTITY
)
META_PROPERTIES_INCOMPLETE: Final = _register(
    "meta-properties-incomplete",
    SEVERE,
    "a meta.properties without a node or cluster id",
    Remedy.IDENTITY,
)
META_PROPERTIES_MISMATCH: Final = _register(
    "meta-properties-mismatch", SEVERE, "directories of different clusters or brokers", Remedy.NONE
)
DIRECTORY_ID_TWICE: Final = _register(
    "directory-id-twice", SEVERE, "two directories with the same directory id", Remedy.NONE
)
DIRECTORY_ID_RESERVED: Final = _register(
    "directory-id-reserved", SEVERE, "a directory id that Kafka reserves", Remedy.IDENTITY
)
DIRECTORY_ID_UNKNOWN: Final = _register(
    "directory-id-unknown",
    WARNING,
    "a directory id that the cluster does not know, of partitions that it does",
    Remedy.NONE,
)
DIRECTORY_OF_OTHER_NODE: Final = _register(
    "directory-of-other-node",
    SEVERE,
    "a directory with the partitions of another node",
    Remedy.NONE,
)
BOOTSTRAP_MALFORMED: Final = _register(
    "bootstrap-malformed", SEVERE, "an unreadable bootstrap.checkpoint", Remedy.NONE
)
QUORUM_STATE_MALFORMED: Final = _register(
    "quorum-state-malformed", SEVERE, "an unreadable quorum-state", Remedy.NONE
)
METADATA_SNAPSHOT_DAMAGED: Final = _register(
    "metadata-snapshot-damaged", SEVERE, "a damaged snapshot of the cluster's metadata", Remedy.NONE
)
METADATA_MISPLACED: Final = _register(
    "metadata-misplaced", SEVERE, "the cluster's metadata outside metadata.log.dir", Remedy.NONE
)
LOG_DIRS_MISMATCH: Final = _register(
    "log-dirs-mismatch", SEVERE, "log.dirs that are not the given directories", Remedy.NONE
)
VOTERS_MISMATCH: Final = _register(
    "voters-mismatch", SEVERE, "voters that are not this node or directory", Remedy.NONE
)
PARTITION_TWICE: Final = _register(
    "partition-twice", SEVERE, "a partition in two directories", Remedy.NONE
)
DIRECTORY_REFUSED: Final = _register(
    "directory-refused", SEVERE, "a directory whose name a broker refuses", Remedy.NONE
)
DIRECTORY_MISNAMED: Final = _register(
    "directory-misnamed", SEVERE, "a directory name that no partition can have", Remedy.NONE
)
TOPIC_CONFIG_REFUSED: Final = _register(
    "topic-config-refused", SEVERE, "a topic configuration that Kafka refuses", Remedy.NONE
)
UPGRADE_TOPIC_CONFIG: Final = _register(
    "upgrade-topic-config",
    INFO,
    "a topic configuration that a later version of Kafka refuses",
    Remedy.NONE,
)
DIRECTORY_DELETE: Final = _register(
    "directory-delete", INFO, "a partition of a deleted topic", Remedy.NONE
)
DIRECTORY_FUTURE: Final = _register(
    "directory-future", INFO, "a partition being moved to this directory", Remedy.NONE
)
DIRECTORY_FUTURE_ALONE: Final = _register(
    "directory-future-alone",
    WARNING,
    "a partition being moved whose log is in no given directory",
    Remedy.NONE,
)
DIRECTORY_STRAY: Final = _register(
    "directory-stray", INFO, "a partition that a broker renamed to -stray", Remedy.NONE
)
FILE_UNREADABLE: Final = _register(
    "file-unreadable", SEVERE, "a file that cannot be read", Remedy.NONE
)
FILE_PERMISSIONS: Final = _register(
    "file-permissions",
    WARNING,
    "files that the directory's owner cannot read or write",
    Remedy.NONE,
)
SYMBOLIC_LINK: Final = _register("symbolic-link", INFO, "a symbolic link", Remedy.NONE)
CLEAN_SHUTDOWN_MALFORMED: Final = _register(
    "clean-shutdown-malformed", WARNING, "an unreadable clean shutdown marker", Remedy.NONE
)

# ---- Tiered storage ----

REMOTE_SEGMENT_MISSING: Final = _register(
    "remote-segment-missing", ERROR, "a file of a remote segment that is missing", Remedy.NONE
)
REMOTE_SEGMENT_SIZE: Final = _register(
    "remote-segment-size", ERROR, "a remote log of another size than its metadata say", Remedy.NONE
)
REMOTE_SEGMENT_OFFSETS: Final = _register(
    "remote-segment-offsets", ERROR, "a remote log with other offsets than expected", Remedy.NONE
)
REMOTE_SEGMENT_FILE: Final = _register(
    "remote-segment-file", ERROR, "a small file of a remote segment that is malformed", Remedy.NONE
)
REMOTE_OFFSETS_MISSING: Final = _register(
    "remote-offsets-missing", ERROR, "offsets that no remote segment has", Remedy.NONE
)
REMOTE_METADATA_MALFORMED: Final = _register(
    "remote-metadata-malformed", ERROR, "remote log metadata that cannot be read", Remedy.NONE
)
REMOTE_SEGMENT_UNFINISHED: Final = _register(
    "remote-segment-unfinished", WARNING, "a remote segment half copied or deleted", Remedy.NONE
)
REMOTE_SEGMENT_ORPHAN: Final = _register(
    "remote-segment-orphan", WARNING, "remote files that no metadata name", Remedy.NONE
)
REMOTE_SEGMENT_OVERLAP: Final = _register(
    "remote-segment-overlap", INFO, "remote segments with the same offsets", Remedy.NONE
)
REMOTE_METADATA_MISSING: Final = _register(
    "remote-metadata-missing", INFO, "no metadata about remote segments", Remedy.NONE
)
