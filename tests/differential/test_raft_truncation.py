"""``kdump diff`` of copies of the metadata log, compared with Kafka's own Raft log."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.java_server import JavaServer
from builders.json_answers import objects
from builders.log_directories import write_log_directory, write_partition
from builders.memory import in_memory
from builders.trees import contents_of
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.names import FileKind, OffsetFileName

METADATA = "__cluster_metadata-0"
Epochs = list[int]
"""The leader epoch of each record, which is a batch of its own, from offset 0 on."""


@pytest.fixture(scope="module")
def raft(java_classpath: str) -> Iterator[JavaServer]:
    with JavaServer(java_classpath, "RaftLogServer") as running:
        yield running


@pytest.mark.parametrize("seed", range(6))
def test_copies_of_the_metadata_truncate_as_kafkas_raft_log_does(
    seed: int, raft: JavaServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    kinds = set[str]()
    with in_memory(tmp_path_factory.mktemp("raft")) as folder:
        for number in range(25):
            root = folder / str(number)
            shared = random_epochs(rng, [])
            sides = [write_copy(root / name, rng, random_epochs(rng, shared)) for name in "ab"]
            outcome = run_kdump(["diff", "--output", "jsonl", "a", "b"], root)
            (row,) = (each for each in objects(outcome.stdout) if each["type"] == "partition")
            for follower, leader in ((0, 1), (1, 0)):
                side = ("left", "right")[follower]
                copies = [
                    shutil.copytree(sides[each], root / f"java-{side}-{role}" / METADATA)
                    for role, each in (("follower", follower), ("leader", leader))
                ]
                said = raft.ask_words(map(str, copies))
                predicted = row[f"{side}_truncates_to"]
                assert ("fails" if predicted is None else str(predicted)) == said["end"], root
                if predicted is not None:
                    assert row[f"{side}_starts_over"] is (said["started over"] == "true"), root
                kinds.add(kind_of(row, side))
            shutil.rmtree(root)
    assert kinds == {"kept", "truncated", "starts over", "fails"}


def test_a_directory_with_the_name_of_a_snapshot_deletes_the_log(
    raft: JavaServer, tmp_path: Path
) -> None:
    """Kafka asks for the name only; so kdump leaves such a copy unchanged and says what comes."""
    copy = write_copy(tmp_path / "a", random.Random(1), [0, 0, 0])
    (copy / f"{100:020d}-{9:010d}.checkpoint").mkdir()
    before = contents_of(copy)
    outcome = run_kdump(["recover", "--partition", METADATA, str(tmp_path / "a")], tmp_path)
    assert b"a starting node deletes the log" in b" ".join(outcome.stdout.split())
    assert contents_of(copy) == before

    follower, leader = (shutil.copytree(copy, tmp_path / each / METADATA) for each in "xy")
    raft.ask_words([str(follower), str(leader)])
    assert [each.name for each in follower.glob("*.log")] == [f"{100:020d}.log"]


def kind_of(row: dict[str, object], side: str) -> str:
    if row[f"{side}_truncates_to"] is None:
        return "fails"
    if row[f"{side}_starts_over"]:
        return "starts over"
    same = row[f"{side}_truncates_to"] == row[f"{side}_end_offset"]
    return "kept" if same else "truncated"


def random_epochs(rng: random.Random, shared: Sequence[int]) -> Epochs:
    """Records after some that another copy has, too; epochs rise."""
    found = [*shared]
    epoch = found[-1] if found else 0
    for _ in range(rng.randrange(4)):
        epoch += rng.randrange(0 if found else 1, 3)
        found += [epoch] * rng.randrange(1, 5)
    return found


def write_copy(root: Path, rng: random.Random, epochs: Epochs) -> Path:
    """A copy that may begin with a snapshot instead of its first records."""
    directory = write_log_directory(root, clean=False)
    start = rng.randrange(len(epochs)) if epochs and rng.random() < 0.5 else 0
    others = dict[str, bytes]()
    snapshots = [start] if start else []
    if epochs and rng.random() < 0.4:
        snapshots.append(rng.randrange(max(start, 1), len(epochs) + 1))
    for end in snapshots:
        name = f"{end:020d}-{epochs[end - 1]:010d}.checkpoint"
        others[name] = batch([record(0)])
    history = [
        EpochEntry(epoch, max(offset, start))
        for offset, epoch in enumerate(epochs)
        if epochs.index(epoch) == offset and any(each == epoch for each in epochs[start:])
    ]
    others[names.LEADER_EPOCH_CHECKPOINT] = encode_leader_epoch_checkpoint(history)
    log = b"".join(
        batch([record(offset)], partition_leader_epoch=epochs[offset])
        for offset in range(start, len(epochs))
    )
    path = write_partition(directory / METADATA, {start: log}, others=others)
    metadata = path / names.PARTITION_METADATA
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert (path / str(OffsetFileName(start, FileKind.LOG))).exists()
    return path
