"""A small ``kdump recover``: apply the loader's rules in place, to compare them with Kafka's.

As a script: ``PYTHONPATH=.:tests python -m builders.recover_for_differ recover DIR
[--config=KEY=VALUE …]``; exits 4 where a partition was refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from builders.apply_target import apply_target
from kdump.broker.loader.checkpoints import is_loaded, recovered_root
from kdump.broker.loader.load_context import IndexSettings, load_context
from kdump.broker.loader.loader import recover_partition
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.kafka_versions import KAFKA_4_3_1
from kdump.formats.names import TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal

INTERVAL: Final = "index.interval.bytes"
MAX_BYTES: Final = "segment.index.bytes"


def recover(
    path: Path,
    settings: IndexSettings | Mapping[str, IndexSettings] | None = None,
    *,
    now_ms: int = 0,
    producer_id_expiration_ms: int | None = None,
) -> dict[TopicPartition, Recovered | Refusal]:
    """Recover the log directory ``path`` in place; return each partition's result.

    ``settings`` are those of all topics, or of each by name.
    """
    directory = read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY)
    outcomes = {}
    for partition in directory.partitions:
        if not is_loaded(partition) or partition.topic_partition is None:
            continue
        topic = partition.topic_partition.topic
        own = settings.get(topic) if isinstance(settings, Mapping) else settings
        own = replace(own or IndexSettings(), kafka_version=KAFKA_4_3_1)
        context = load_context(
            directory,
            partition.topic_partition,
            own,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        outcome = recover_partition(partition, context)
        outcomes[partition.topic_partition] = outcome
        if isinstance(outcome, Recovered):
            apply_target(partition.path.local_path, outcome.files)
    apply_target(path, recovered_root(directory, outcomes))
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["recover"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--show", action="store_true", help="say what was refused")
    options = parser.parse_args()
    config = dict(item.split("=", 1) for item in options.config)
    settings = IndexSettings(
        int(config.get(INTERVAL, IndexSettings().interval_bytes)),
        int(config.get(MAX_BYTES, IndexSettings().max_bytes)),
    )
    outcomes = recover(options.directory, settings)
    refused = {tp: outcome for tp, outcome in outcomes.items() if isinstance(outcome, Refusal)}
    if options.show:
        for topic_partition, refusal in refused.items():
            print(topic_partition, refusal)
    return 4 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
