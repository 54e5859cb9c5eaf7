"""A small ``kdump retain``: apply retention in place, to compare it with Kafka's.

As a script: ``PYTHONPATH=.:tests python -m builders.retain_for_differ retain DIR
[--config=KEY=VALUE …] [--now=MS]``; exits 4 where a partition was refused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from builders.apply_target import apply_target
from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.loader.load_context import load_context
from kdump.broker.retention.retention_outcome import Retained, load_log, retained, retained_root
from kdump.formats.names import TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.metadata.settings import Settings, TopicSettings
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal


def retain(
    path: Path, settings: TopicSettings, now_ms: int
) -> dict[TopicPartition, Retained | Refusal]:
    """Apply retention to the log directory ``path`` in place; return each partition's result."""
    directory = read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY)
    high_watermarks = directory.checkpoints.high_watermarks or {}
    found: dict[TopicPartition, Retained | Refusal] = {}
    for partition in directory.partitions:
        key = partition.topic_partition
        if not is_loaded(partition) or key is None:
            continue
        context = load_context(directory, key, now_ms=now_ms)
        loaded = load_log(partition.path, context, high_watermarks.get(key))
        if isinstance(loaded, Refusal):
            found[key] = loaded
            continue
        found[key] = outcome = retained(loaded, settings, now_ms)
        apply_target(partition.path.local_path, outcome.outcome.files)
    outcomes = {key: each.outcome for key, each in found.items() if isinstance(each, Retained)}
    apply_target(path, retained_root(directory, outcomes))
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["retain"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--now", type=int, default=1_800_000_000_000)
    options, _ = parser.parse_known_args()
    config = dict(item.split("=", 1) for item in options.config)
    settings = Settings(given=config).topic("case")
    outcomes = retain(options.directory, settings, options.now)
    return 4 if any(isinstance(outcome, Refusal) for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
