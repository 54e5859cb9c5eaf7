"""Leader epochs in memory, compared with Kafka's own ``LeaderEpochFileCache``."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from builders.java_server import JavaServer
from builders.memory import in_memory
from kdump.formats.checkpoints import EpochEntry
from kdump.state.epochs.epoch_history import EpochEnd, EpochHistory

HISTORY = EpochHistory([EpochEntry(2, 10), EpochEntry(5, 30)])


@pytest.fixture(scope="module")
def epoch_server(
    java_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaServer]:
    with (
        in_memory(tmp_path_factory.mktemp("epochs")) as folder,
        JavaServer(java_classpath, "EpochServer", f"-Djava.io.tmpdir={folder}") as running,
    ):
        yield running


def test_an_epoch_ends_where_the_next_begins_and_the_latest_where_the_log_ends() -> None:
    assert HISTORY.end_offset_for(2, 50) == EpochEnd(2, 30)
    assert HISTORY.end_offset_for(5, 50) == EpochEnd(5, 50)


def test_an_epoch_without_records_ends_with_the_one_before_it() -> None:
    assert HISTORY.end_offset_for(4, 50) == EpochEnd(2, 30)


def test_an_epoch_before_the_first_ends_where_the_first_begins() -> None:
    assert HISTORY.end_offset_for(1, 50) == EpochEnd(1, 10)


def test_the_end_of_an_epoch_after_the_latest_is_unknown() -> None:
    assert HISTORY.end_offset_for(6, 50) is None
    assert HISTORY.end_offset_for(-1, 50) is None
    assert EpochHistory().end_offset_for(0, 50) is None


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, None), (10, 2), (29, 2), (30, 5), (1_000, 5)], ids=str
)
def test_an_offset_belongs_to_the_latest_epoch_that_started_by_then(
    offset: int, epoch: int | None
) -> None:
    assert HISTORY.epoch_for_offset(offset) == epoch


@pytest.mark.parametrize("entry", [EpochEntry(-1, 0), EpochEntry(0, -1)], ids=str)
def test_negative_epochs_and_offsets_are_rejected(entry: EpochEntry) -> None:
    with pytest.raises(ValueError, match="impossible"):
        EpochHistory([entry])


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_give_the_same_results_as_kafka(
    epoch_server: JavaServer, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        operations = [random_operation(rng) for _ in range(rng.randrange(1, 60))]
        assert answers(operations) == epoch_server.ask_words(operations), operations


def random_operation(rng: random.Random) -> str:
    epoch, offset = rng.randrange(12), rng.randrange(80)
    operations = [
        f"assign {epoch} {offset}",
        f"assign {epoch} {epoch * 6 + rng.randrange(4)}",
        f"end {rng.randrange(-1, 14)} {offset}",
        f"epoch {offset}",
        "entries",
    ]
    if rng.random() < 0.1:
        operations = [f"truncate-from-end {offset - 1}", f"truncate-from-start {offset // 4 - 1}"]
    return rng.choice(operations)


def answers(operations: list[str]) -> dict[str, str]:
    history = EpochHistory()
    given = {}
    for number, operation in enumerate(operations):
        match operation.split():
            case ["assign", epoch, offset]:
                history.assign(int(epoch), int(offset))
            case ["truncate-from-end", offset]:
                history.truncate_from_end(int(offset))
            case ["truncate-from-start", offset]:
                history.truncate_from_start(int(offset))
            case ["end", epoch, log_end_offset]:
                end = history.end_offset_for(int(epoch), int(log_end_offset))
                given[str(number)] = "-1 -1" if end is None else f"{end[0]} {end[1]}"
            case ["epoch", offset]:
                found = history.epoch_for_offset(int(offset))
                given[str(number)] = "none" if found is None else str(found)
            case ["entries"]:
                words = [f"{entry.epoch}:{entry.start_offset}" for entry in history.entries]
                given[str(number)] = " ".join(["entries", *words])
    return given
