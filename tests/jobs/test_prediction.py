"""A prediction from the checks alone equals the result of the loader's rules."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import random_partitions
from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.random_partitions import Files
from builders.recover_for_differ import recover
from builders.samples import seeds
from builders.verified import said_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.loader.recovered_partition import Recovered
from kdump.check.part import Level
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.names import FileKind, OffsetFileName, TopicPartition
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import LoadSplit, load_split
from kdump.jobs.verify import verify_partition
from kdump.jobs.verify.verify import VerifyEvent, VerifySummary
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local

COUNT = 60
NOW_MS = 1_800_000_000_000
SETTINGS = IndexSettings()


def plain_logs(rng: random.Random) -> Files:
    """Generate the logs of a partition without transactions."""
    logs: Files = {}
    offset = rng.choice([0, 1000])
    sequence = 0
    for _ in range(rng.choice([1, 2, 4])):
        base_offset, log = offset, b""
        for _ in range(rng.choice([1, 5, 40])):
            count = rng.randrange(1, 8)
            records = [
                record(offset + step, timestamp=BASE_TIMESTAMP_MS + rng.randrange(10**6))
                for step in range(count)
            ]
            has_producer = rng.random() < 0.5
            log += (
                batch(records, producer_id=5, producer_epoch=0, base_sequence=sequence)
                if has_producer
                else batch(records)
            )
            sequence += count if has_producer else 0
            offset += count + (rng.randrange(9) if rng.random() < 0.05 else 0)
        logs[str(OffsetFileName(base_offset, FileKind.LOG))] = log
    return logs


def write(directory: Path, files: Files) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)


def make_directory(root: Path, seed: int, *, is_clean: bool) -> Path:
    """Write a log directory with many partitions, some of them damaged."""
    rng = random.Random(seed)
    root.mkdir()
    for number in range(COUNT):
        logs = random_partitions.random_logs(rng) if rng.random() < 0.3 else plain_logs(rng)
        write(root / f"case-{number}", logs)
    recover(root)
    ends = (
        read_log_directory(local(root), DirectoryKind.LOG_DIRECTORY).checkpoints.recovery_points
        or {}
    )
    if not is_clean:
        (root / names.CLEAN_SHUTDOWN_MARKER).unlink()
    checkpoints: dict[str, dict[TopicPartition, int]] = {
        names.RECOVERY_POINT_CHECKPOINT: dict(ends),
        names.LOG_START_OFFSET_CHECKPOINT: {},
        names.REPLICATION_OFFSET_CHECKPOINT: dict(ends),
    }
    for number in range(COUNT):
        partition = TopicPartition("case", number)
        path = root / str(partition)
        files = {file.name: file.read_bytes() for file in path.iterdir()}
        if not is_clean:
            files = random_partitions.as_after_crash(files)
            offsets = random_partitions.checkpointed_offsets(rng, ends[partition])
            for checkpoint, offset in offsets:
                checkpoints[checkpoint][partition] = offset
        if rng.random() < 0.6:
            _, files = random_partitions.after_happenings(rng, files)
        for file in path.iterdir():
            file.unlink()
        write(path, files)
    for checkpoint, lines in checkpoints.items():
        entries = (OffsetEntry(*line) for line in lines.items())
        (root / checkpoint).write_bytes(encode_offset_checkpoint(entries))
    return root


def events_of(root: Path, level: Level) -> list[VerifyEvent]:
    return [
        replace(each, seconds=0) if isinstance(each, VerifySummary) else each
        for each in said_of(root, level=level, now_ms=NOW_MS)
    ]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the partitions that the loader's rules run on."""
    asked: list[str] = []
    run = RecoverJob.run

    def noted(self: RecoverJob, split: LoadSplit) -> object:
        asked.append(split.name)
        return run(self, split)

    monkeypatch.setattr(RecoverJob, "run", noted)
    return asked


@pytest.fixture(scope="module", params=seeds(0, count=3, in_main=1))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["clean", "unclean"])
def is_clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def root(seed: int, is_clean: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log directory once, to check it at every level."""
    return make_directory(tmp_path_factory.mktemp("predicted") / "logs", seed, is_clean=is_clean)


@pytest.mark.slow
@pytest.mark.parametrize("level", Level)
def test_the_checks_predict_the_result_of_the_loaders_rules(
    root: Path,
    is_clean: bool,
    level: Level,
    loaded: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predicted = events_of(root, level)
    by_rules = set(loaded)
    monkeypatch.setattr(verify_partition, "is_plain", lambda *_: False)
    assert events_of(root, level) == predicted
    kinds = {each.verdict_kind for each in predicted if isinstance(each, PartitionReport)}
    assert len(kinds) >= 3
    is_predictable = is_clean or level > Level.QUICK
    assert (len(by_rules) < COUNT) == is_predictable


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.DEEP])
@pytest.mark.parametrize("size_bytes", [10, 5000])
def test_checks_and_rules_agree_on_padding(size_bytes: int, level: Level, tmp_path: Path) -> None:
    (tmp_path / "case-0").mkdir()
    log = tmp_path / "case-0" / f"{0:020d}.log"
    log.write_bytes(batch([record(0)]))
    recover(tmp_path)
    (tmp_path / names.CLEAN_SHUTDOWN_MARKER).unlink()
    log.write_bytes(log.read_bytes() + bytes(size_bytes))
    directory = read_log_directory(local(tmp_path))
    outcome = RecoverJob().run(load_split(directory.partitions[0], directory, Settings()))
    assert isinstance(outcome, Recovered)

    *_, report, summary = events_of(tmp_path, level)

    assert isinstance(report, PartitionReport)
    assert (report.verdict_kind, report.verdict) == ("unclean", verdict(outcome).sentence)
    assert isinstance(summary, VerifySummary)


@pytest.mark.parametrize("name", ["transactions", "old messages"])
def test_the_loaders_rules_run_where_the_checks_are_not_enough(
    name: str, loaded: list[str], tmp_path: Path
) -> None:
    rng = random.Random(1)
    writer = random_partitions._Writer(rng)
    content = writer.legacy(1) if name == "old messages" else b""
    while name == "transactions" and not any(each.has_txn for each in writer.producers):
        content += writer.next_batch()
    (tmp_path / "case-0").mkdir()
    (tmp_path / "case-0" / f"{0:020d}.log").write_bytes(content)
    recover(tmp_path)
    events_of(tmp_path, Level.DEFAULT)
    assert loaded == ["case-0"]
