"""Truncations of followers, compared with Kafka's own fetcher."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from builders.java_server import JavaServer
from builders.memory import in_memory
from kdump.formats.checkpoints import EpochEntry
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.epochs.follower_truncation import LoadedReplica, Truncation, truncation_as_follower


def replica(
    end: int, *epochs: tuple[int, int], start: int = 0, high_watermark: int | None = None
) -> LoadedReplica:
    """A replica whose log ends at ``end``; ``epochs`` are epochs and where they begin."""
    return LoadedReplica(start, end, high_watermark, [EpochEntry(*entry) for entry in epochs])


def test_a_follower_with_the_same_epochs_keeps_everything() -> None:
    assert truncation_as_follower(replica(20, (0, 0)), replica(30, (0, 0))) == Truncation(20)


def test_a_follower_loses_what_it_has_of_an_epoch_after_the_leaders_end() -> None:
    assert truncation_as_follower(replica(31, (0, 0)), replica(24, (0, 0))) == Truncation(24)


def test_epochs_that_the_leader_does_not_have_are_truncated() -> None:
    follower = replica(31, (0, 0), (2, 17), (3, 28))
    leader = replica(40, (0, 0), (2, 17), (4, 24))
    assert truncation_as_follower(follower, leader) == Truncation(24)
    assert truncation_as_follower(leader, follower) == Truncation(24)


def test_a_follower_without_epochs_truncates_to_its_high_watermark() -> None:
    assert truncation_as_follower(replica(20, high_watermark=7), replica(30)) == Truncation(7)
    assert truncation_as_follower(replica(20), replica(30)) is None
    assert truncation_as_follower(replica(0), replica(30)) == Truncation(0)


def test_a_follower_that_ends_before_the_leader_begins_starts_over() -> None:
    follower, leader = replica(10, (0, 0)), replica(30, (0, 24), start=24)
    assert truncation_as_follower(follower, leader) == Truncation(24, starts_over=True)


@pytest.fixture(scope="module")
def fetcher(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaServer]:
    with (
        in_memory(tmp_path_factory.mktemp("fetcher")) as folder,
        JavaServer(java_classpath, "FetcherServer", f"-Djava.io.tmpdir={folder}") as running,
    ):
        yield running


@pytest.mark.parametrize("seed", range(4))
def test_random_pairs_truncate_as_kafkas_fetcher_does(fetcher: JavaServer, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        shared = random_epochs(rng, 0, 0, rng.randrange(3))
        follower, leader = random_replica(rng, shared), random_replica(rng, shared)
        said = fetcher.ask_words([*words_of(follower), *words_of(leader)])
        expected = Truncation(int(said["end"]), starts_over=said["started over"] == "true")
        assert truncation_as_follower(follower, leader) == expected, (follower, leader)


def random_epochs(rng: random.Random, epoch: int, offset: int, count: int) -> list[EpochEntry]:
    found = []
    for _ in range(count):
        found.append(EpochEntry(epoch, offset))
        epoch += rng.choice([1, 1, 2, 3])
        offset += rng.randrange(1, 9)
    return found


def random_replica(rng: random.Random, shared: list[EpochEntry]) -> LoadedReplica:
    """A log that may have begun like another one, without its first records perhaps."""
    epoch, offset = (shared[-1].epoch, shared[-1].start_offset) if shared else (0, 0)
    first = EpochEntry(epoch + rng.randrange(1, 3), offset + rng.randrange(1, 9))
    own = random_epochs(rng, first.epoch, first.start_offset, rng.randrange(4))
    history = EpochHistory([*shared, *own])
    end = max(0, (own or shared or [first])[-1].start_offset + rng.randrange(-3, 9))
    start = rng.randrange(end + 1) if rng.random() < 0.4 else 0
    history.truncate_from_end(end)
    history.truncate_from_start(start)
    entries = history.entries if rng.random() < 0.9 else ()
    return LoadedReplica(start, end, rng.randrange(start, end + 1), entries)


def words_of(replica: LoadedReplica) -> list[str]:
    epochs = " ".join(f"{entry.epoch}:{entry.start_offset}" for entry in replica.leader_epochs)
    bounds = f"{replica.log_start_offset} {replica.log_end_offset} {replica.high_watermark}"
    return [epochs, bounds]


@dataclass
class Copy:
    """A replica of a simulated partition: its records by their epochs, from offset 0 on."""

    records: list[tuple[int, int]] = field(default_factory=list)

    @property
    def loaded(self) -> LoadedReplica:
        history = EpochHistory()
        for offset, (epoch, _) in enumerate(self.records):
            history.assign(epoch, offset)
        return LoadedReplica(0, len(self.records), 0, history.entries)

    def follow(self, leader: Copy, count: int) -> None:
        """Truncate as predicted, and fetch some records."""
        truncation = truncation_as_follower(self.loaded, leader.loaded)
        assert truncation is not None
        kept = self.records[: truncation.end_offset]
        assert kept == leader.records[: len(kept)]
        self.records = leader.records[: len(kept) + count]


@pytest.mark.parametrize("seed", range(50))
def test_what_a_follower_keeps_is_what_the_leader_has(seed: int) -> None:
    # Any replica may be elected, also one that is behind.
    rng = random.Random(seed)
    copies = [Copy() for _ in range(3)]
    for epoch in range(30):
        leader = rng.choice(copies)
        leader.records += [(epoch, rng.randrange(1 << 30)) for _ in range(rng.randrange(6))]
        for copy in copies:
            if copy is not leader and rng.random() < 0.6:
                copy.follow(leader, rng.randrange(9))
