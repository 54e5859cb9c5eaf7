"""What a running broker and ``kafka-transactions`` say of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builders.broker import BrokerHost, RequestFailed


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer:
    """A transactional id, as ``describeTransactions`` has it."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class OpenAnswer:
    """An open transaction, as ``describeProducers`` has it."""

    first_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_time_ms: int


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The last stable offset of a partition and its open transactions."""

    last_stable_offset: int
    open_transactions: tuple[OpenAnswer, ...]


class TransactionQuestions:
    """Asks the broker that a host runs."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host

    def coordinators(self, *of_each: str) -> dict[str, CoordinatorAnswer]:
        """Describe all transactional ids, given one of each coordinator."""
        found = {}
        for name, what in self._ask("coordinators", *of_each).items():
            state, producer_id, epoch, timeout, start, partitions = what.split("\t")
            found[name] = CoordinatorAnswer(
                state,
                int(producer_id),
                int(epoch),
                int(timeout),
                None if start == "-" else int(start),
                tuple(sorted(partitions.split(","))) if partitions else (),
            )
        return found

    def partitions(self) -> dict[str, PartitionAnswer]:
        """Describe all partitions by name."""
        found = {}
        for name, what in self._ask("partitions").items():
            offset, *opened = what.split("\t")
            answers = (OpenAnswer(*map(int, each.split(" "))) for each in opened)
            found[name] = PartitionAnswer(int(offset), tuple(sorted(answers)))
        return found

    def run_tool(self, arguments: Sequence[str]) -> list[str]:
        """Run ``kafka-transactions.sh`` with arguments; gives the lines that it prints."""
        return list(self._ask("tool", *arguments).values())

    def commit_offset(self, producer: str, group: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 in the open transaction of a producer."""
        self._ask("offset", producer, group, topic, str(offset))

    def _ask(self, *words: str) -> dict[str, str]:
        said = self._host.ask_words(("transactions", *words))
        if "failed" in said:
            raise RequestFailed(f"{words[0]}: {said['failed']}")
        return said
