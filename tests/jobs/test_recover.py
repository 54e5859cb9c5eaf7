"""Recovery predicted by tasks, with the same result on every engine."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.log_directories import offset_checkpoint
from builders.verified import END_OFFSET, NOW_MS, LogModel, file
from kdump.broker.loader.recovered_partition import Recovered
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.engine.job import Split
from kdump.engine.progress import Silent
from kdump.engine.spark import SparkEngine
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.names import FileKind, TopicPartition
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import is_topic_compacted, load_split
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.recover import DirectoryRecovery, RecoverRequest, recover
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.selection import PartitionSelection
from kdump.repair.policies import Policy
from kdump.state.metadata.cluster import ClusterImage, ClusterTopic
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local

HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write the log directory of a killed broker: three partitions, one with a damaged batch."""
    model = LogModel(is_clean=False)
    partition = model.write(tmp_path / "logs")
    for name in ("damaged-0", "large-0"):
        copy = partition.with_name(name)
        copy.mkdir()
        for each in partition.iterdir():
            (copy / each.name).write_bytes(each.read_bytes())
    damaged = file(partition.with_name("damaged-0"), 12, FileKind.LOG)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    large = file(partition.with_name("large-0"), 12, FileKind.LOG)
    large.write_bytes(large.read_bytes() + bytes(10_000))
    offsets = {(topic, 0): 12 for topic in ("orders", "damaged", "large")}
    path = partition.parent
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(offsets))
    return path


def request(root: Path, **options: object) -> RecoverRequest:
    directory, settings = read_log_directory(local(root)), {local(root): Settings()}
    return RecoverRequest([directory], settings, now_ms=NOW_MS, **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_workers_have_the_same_result(root: Path) -> None:
    assert recover(request(root), HERE) == recover(request(root), WORKERS)


def test_spark_has_the_same_result(root: Path, spark: SparkEngine) -> None:
    directory = read_log_directory(local(root))
    splits = [load_split(each, directory, Settings()) for each in directory.partitions]

    found = dict(spark.run(RecoverJob(), splits))

    assert found == {split: RecoverJob().run(split) for split in splits}


def test_splits_and_results_can_be_pickled(root: Path) -> None:
    directory = read_log_directory(local(root))
    split = load_split(directory.partitions[0], directory, Settings())
    outcome = RecoverJob().run(split)
    assert pickle.loads(pickle.dumps((RecoverJob(), split, outcome))) == (
        RecoverJob(),
        split,
        outcome,
    )


class Noting(Silent):
    """Records the labels of the splits."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.total_bytes = 0

    def begin(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes

    def working_on(self, label: str) -> None:
        self.labels.append(label)


def test_the_largest_partition_runs_first_and_progress_counts_only_bytes_to_read(
    root: Path,
) -> None:
    progress = Noting()

    recover(request(root), replace(HERE, progress=progress))

    assert progress.labels[0] == "large-0"
    active = (file(root / name, 12, FileKind.LOG) for name in ("orders-0", "damaged-0", "large-0"))
    assert progress.total_bytes == sum(path.stat().st_size for path in active)


def test_logs_of_a_clean_directory_are_read_only_for_salvage(tmp_path: Path) -> None:
    directory = read_log_directory(local(LogModel().write(tmp_path / "logs").parent))
    (partition,) = directory.partitions

    assert load_split(partition, directory, Settings()).size_bytes == 0
    salvaged = load_split(partition, directory, Settings(), policy=Policy.SALVAGE)
    assert salvaged.size_bytes == partition.log_bytes


def only(results: list[DirectoryRecovery]) -> DirectoryRecovery:
    (result,) = results
    return result


def test_only_selected_partitions_are_recovered(root: Path) -> None:
    result = only(
        recover(request(root, selection=PartitionSelection(partitions=("large-*", "orders-*"))))
    )

    assert [each.partition.path.name for each in result.partitions] == ["large-0", "orders-0"]
    assert {change.path.name for change in result.target.partitions} == {"large-0", "orders-0"}
    assert not result.becomes_clean


def test_the_result_has_the_new_recovery_points(root: Path) -> None:
    result = only(recover(request(root)))

    ends = {str(key): offset for key, offset in result.recovery_points.items()}
    assert ends == {"damaged-0": 15, "large-0": END_OFFSET, "orders-0": END_OFFSET}
    assert result.becomes_clean
    assert result.log_start_offsets == {}


def test_the_index_settings_of_the_topic_are_used(root: Path) -> None:
    directory = read_log_directory(local(root))
    settings = Settings(given={"index.interval.bytes": "7", "segment.index.bytes": "80"})

    split = load_split(directory.partitions[0], directory, settings)

    assert (split.context.settings.interval_bytes, split.context.settings.max_bytes) == (7, 80)


def test_a_missing_file_is_reported_as_unreadable(root: Path) -> None:
    directory: LogDirectory = read_log_directory(local(root))
    split: Split = load_split(directory.partitions[0], directory, Settings())
    for path in (root / "damaged-0").iterdir():
        path.unlink()
    (root / "damaged-0").rmdir()

    outcome = RecoverJob().run(split)  # type: ignore[arg-type]

    assert outcome == Unreadable(str(root / "damaged-0"), "No such file or directory")


def test_a_topic_without_a_policy_in_the_metadata_is_not_compacted() -> None:
    topics = {"t": ClusterTopic("t", "id", {}), "u": ClusterTopic("u", "id", COMPACT)}
    settings = Settings(cluster=ClusterImage(topics, {}))

    assert is_topic_compacted(settings, "t") is False
    assert is_topic_compacted(settings, "u") is True
    assert is_topic_compacted(settings, "v") is None


@pytest.mark.parametrize("epoch_start", [None, 13])
def test_malformed_log_start_offsets_do_not_show_deleted_records(
    epoch_start: int | None, root: Path
) -> None:
    """A readable line counts; without one, what leader epochs show to be deleted."""
    text = "?\n1\norders 0 13\n" if epoch_start is None else "?"
    (root / names.LOG_START_OFFSET_CHECKPOINT).write_text(text)
    if epoch_start is not None:
        epochs = encode_leader_epoch_checkpoint([EpochEntry(5, epoch_start)])
        (root / "orders-0" / names.LEADER_EPOCH_CHECKPOINT).write_bytes(epochs)
    result = only(recover(request(root)))
    key = TopicPartition("orders", 0)
    assert result.log_start_offsets[key] == 13
    (log,) = [each.outcome for each in result.partitions if each.partition.topic_partition == key]
    assert isinstance(log, Recovered)
    assert log.log_start_offset == 13
