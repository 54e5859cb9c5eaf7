"""A small ``kdump compact``: apply the cleaner's rules in place, to compare them with Kafka's.

As a script: ``PYTHONPATH=.:tests python -m builders.compact_for_differ compact DIR
--now=EPOCH_MS [--topic=GLOB] [--config=KEY=VALUE …]``; exits 4 where a partition was refused.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from builders.apply_target import apply_target
from kdump.broker.cleaner.cleaned_root import compacted_root
from kdump.broker.cleaner.cleaned_segment import GroupRewriter, GroupToRewrite, RewrittenGroup
from kdump.broker.cleaner.compaction_keys import live_records
from kdump.broker.cleaner.compaction_rewrite import Piece
from kdump.broker.cleaner.compaction_round import Compacted, Round, begin_round, staged_name
from kdump.broker.cleaner.compaction_scan import ScannedPart, scan_part, survey_part
from kdump.broker.cleaner.live_records import LiveRecords
from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.loader.load_context import IndexSettings, load_context
from kdump.formats.kafka_versions import KAFKA_4_3_1
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import CopiedFrom


def compact(
    path: Path, given: Mapping[str, str], *, now_ms: int, topic: str = "*"
) -> dict[TopicPartition, Compacted | Refusal]:
    """Compact the partitions of the log directory ``path`` in place; return each one's result."""
    directory = read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY)
    settings = Settings(given=dict(given))
    outcomes: dict[TopicPartition, Compacted | Refusal] = {}
    for partition in directory.partitions:
        name = partition.topic_partition
        # A future replica, which is being moved to this directory, is not cleaned.
        is_live = partition.state is PartitionState.LIVE and is_loaded(partition)
        if name is None or not is_live or not fnmatchcase(name.topic, topic):
            continue
        own = settings.topic(name.topic)
        indexes = IndexSettings(own.index_interval_bytes, own.segment_index_bytes, KAFKA_4_3_1)
        context = load_context(directory, name, indexes, now_ms=now_ms)
        cleaner_offset = (directory.checkpoints.cleaner_offsets or {}).get(name)
        begun = begin_round(partition, context, own, cleaner_offset)
        outcome = begun if isinstance(begun, Refusal) else compact_round(begun)
        outcomes[name] = outcome
        if isinstance(outcome, Compacted):
            apply_target(partition.path.local_path, outcome.files)
            for file, modified_ms in outcome.modified_ms.items():
                os.utime(
                    (partition.path / file).local_path,
                    ns=(modified_ms * 10**6, modified_ms * 10**6),
                )
    done = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Compacted)}
    apply_target(path, compacted_root(directory, done))
    return outcomes


def compact_round(begun: Round) -> Compacted | Refusal:
    """Run all steps of a round in this process, and write the new logs beside the old ones."""
    surveyed = None
    if begun.needs_survey:
        surveyed = {}
        for part in begun.parts_to_survey():
            found = survey_part(part)
            if isinstance(found, Refusal):
                return found
            surveyed[part.path] = found
    scanned = {}
    for part in begun.parts_to_scan(surveyed):
        scan = scan_part(part)
        if isinstance(scan, Refusal):
            return scan
        scanned[part.path] = [scan]
    if not scanned:
        return begun.finish()
    disorder = begun.disorder(scanned)
    if disorder is not None:
        return disorder
    groups = begun.groups_to_rewrite(scanned, live_of(scanned)[0])
    return begun.finish([write_group(group) for group in groups])


def live_of(scanned: Mapping[Location, Sequence[ScannedPart]]) -> tuple[LiveRecords, int]:
    """Return the live records of a log, and its number of distinct keys."""
    parts = [part for found in scanned.values() for part in found]
    return live_records((part.mapped for part in parts), (part.unmapped for part in parts))


def write_group(group: GroupToRewrite) -> RewrittenGroup | Refusal:
    """Write the new log of ``group`` under its temporary name, unless it is unchanged."""
    rewriter = GroupRewriter(group)
    staged = group.path / staged_name(group.base_offset)
    with staged.local_path.open("wb") as file:
        for data in _bytes_of(rewriter.pieces(), group.path.local_path):
            file.write(data)
    outcome = rewriter.outcome
    if isinstance(outcome, Refusal) or outcome.is_unchanged:
        staged.local_path.unlink()
    return outcome


def _bytes_of(pieces: Iterator[Piece], folder: Path) -> Iterator[bytes]:
    for piece in pieces:
        if isinstance(piece, CopiedFrom):
            with (folder / piece.name).open("rb") as file:
                file.seek(piece.start)
                yield file.read(piece.size_bytes)
        else:
            yield piece


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["compact"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--topic", default="*")
    parser.add_argument("--now", type=int, required=True)
    parser.add_argument("--no-undo", action="store_true")
    parser.add_argument("--show", action="store_true", help="say what was refused")
    options = parser.parse_args()
    config = dict(item.split("=", 1) for item in options.config)
    outcomes = compact(options.directory, config, now_ms=options.now, topic=options.topic)
    refused = 0
    for name, outcome in outcomes.items():
        problem = outcome if isinstance(outcome, Refusal) else outcome.stopped_by
        if problem is not None:
            refused += 1
            if options.show:
                print(name, problem, file=sys.stderr)
    return 4 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
