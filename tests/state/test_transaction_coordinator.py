"""What coordinators know of transactions is what Kafka's own ``TransactionLog`` loads."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.java_server import JavaServer
from builders.samples import examples
from builders.transaction_states import Pair, columns_of, joined_columns_of, key_of, value_of
from kdump.state.transactions import transaction_records
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorLog,
    CoordinatorLogReader,
    CoordinatorState,
    CoordinatorTransaction,
    completion_of,
)
from kdump.state.transactions.transaction_records import rows_that_matter

STATES = list(CoordinatorState)

topics = st.lists(
    st.tuples(st.sampled_from(["orders", "a.b-c", "Ω" * 60]), st.lists(st.integers(0, 3))),
    max_size=3,
)
numbers = st.sampled_from([-1, 0, 1, 5, 1 << 40, -(1 << 62)])


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """Values that brokers write, and some that they do not."""
    state = draw(st.integers(0, 9))
    is_null = draw(st.sampled_from([True, False])) if state == 0 else draw(st.integers(0, 9)) == 9
    written = value_of(
        version=draw(st.sampled_from([0, 1, 1, 1, 2, -1])),
        producer_id=draw(numbers),
        producer_epoch=draw(st.integers(-1, 5)),
        timeout_ms=draw(st.integers(0, 60_000)),
        state=state,
        partitions=None if is_null else draw(topics),
        last_change_ms=draw(numbers),
        start_time_ms=draw(numbers),
        tags=draw(
            st.dictionaries(
                st.sampled_from(["previous", "next", "epoch", "client", "unknown"]),
                st.integers(-1, 3),
            )
        ),
    )
    end = draw(st.integers(0, 60))
    return written[:-end] if end in (1, 2, 9, 30) else written + bytes(end == 3)


ids = st.sampled_from(["tx-1", "tx-2", "Ω", "", "a" * 300])
keys = ids.map(key_of) | st.sampled_from(
    [None, b"", b"\0\0", b"\0\1\0\1a", b"\0\0\0\2\xff\xfe", b"\0\0\0\1ab", b"\0\0\xff\xff"]
)
pairs = st.tuples(
    st.one_of(ids.map(key_of), ids.map(key_of), ids.map(key_of), keys), st.none() | values()
)


@pytest.fixture(scope="module")
def kafka(java_classpath: str) -> Iterator[JavaServer]:
    with JavaServer(java_classpath, "TransactionLogServer", "-Xmx64m") as running:
        yield running


def loaded_by_kafka(kafka: JavaServer, log: Sequence[Pair]) -> dict[str, str]:
    """What Kafka loads: fields by transactional id, and the words of the server."""
    words = (_word(content) for pair in log for content in pair)
    said = kafka.ask_words(words)
    return {
        name if name in ("ignored", "failed") else base64.b64decode(name).decode(): what
        for name, what in said.items()
    }


def _word(content: bytes | None) -> str:
    return "-" if content is None else base64.b64encode(content).decode()


def read(log: Sequence[Pair]) -> CoordinatorLog:
    reader = CoordinatorLogReader()
    for columns in columns_of(log):
        reader.take(columns)
    return reader.log()


def in_kafkas_words(found: CoordinatorTransaction) -> str:
    partitions = {
        f"{base64.b64encode(each.topic.encode()).decode()}:{each.partition}"
        for each in found.partitions
    }
    numbers = (
        found.producer_id,
        found.producer_epoch,
        _or_minus_one(found.previous_producer_id),
        found.state.value,
        found.timeout_ms,
        _or_minus_one(found.start_time_ms),
        found.last_change_ms,
        found.client_transaction_version,
    )
    return " ".join([*map(str, numbers), *sorted(partitions)])


def _or_minus_one(number: int | None) -> int:
    return -1 if number is None else number


def _sorted(fields: str) -> str:
    words = fields.split(" ")
    return " ".join([*words[:8], *sorted(words[8:])])


@pytest.mark.differential
@settings(max_examples=examples(2))
@given(log=st.lists(pairs, max_size=12))
@example(log=[(key_of("a"), value_of(state=4, partitions=None)), (key_of("b"), value_of())])
def test_transactions_are_those_that_kafka_loads(kafka: JavaServer, log: list[Pair]) -> None:
    expected = loaded_by_kafka(kafka, log)
    ignored = int(expected.pop("ignored"))
    stop = expected.pop("failed", None)

    found = read(log)

    assert (None if found.unreadable is None else found.unreadable.offset) == (
        None if stop is None else int(stop)
    )
    certain = {
        each.transactional_id: in_kafkas_words(each)
        for each in found.transactions
        if each.is_certain
    }
    loaded = {name: _sorted(fields) for name, fields in expected.items()}
    if stop is None:
        assert certain == loaded
        assert found.unknown_versions == ignored
    else:
        # Ids that later records are about are uncertain.
        assert certain.items() <= loaded.items()
        at_the_stop = read(log[: int(stop)])
        assert {
            each.transactional_id: in_kafkas_words(each) for each in at_the_stop.transactions
        } == loaded


@settings(max_examples=examples(0.6))
@given(log=st.lists(pairs, max_size=40), repeats=st.integers(3, 6))
def test_records_that_a_later_one_replaces_need_not_be_decoded(
    log: list[Pair], repeats: int
) -> None:
    long = log * repeats
    reader = CoordinatorLogReader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_records, "_FEW", 0)
        columns = joined_columns_of(long)
        for each in columns:
            reader.take(each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_records, "_FEW", len(long))
        assert reader.log() == read(long)


def test_of_usual_records_only_the_last_of_each_id_is_decoded() -> None:
    log: list[Pair] = [
        (key_of(f"tx-{number % 3}"), value_of(version=number % 2, state=number % 6))
        for number in range(200)
    ]
    log[50] = (key_of("tx-1"), None)
    (columns,) = joined_columns_of(log)
    assert rows_that_matter(columns).tolist() == [197, 198, 199]


@pytest.mark.differential
@settings(max_examples=examples(2))
@given(
    state=st.sampled_from([2, 3]),
    version=st.sampled_from([0, 1]),
    epoch=st.integers(0, 32767),
    start_time_ms=st.sampled_from([-1, 0, 5]),
    tags=st.fixed_dictionaries(
        {}, optional={"previous": numbers, "next": st.integers(-1, 3), "client": st.integers(0, 2)}
    ),
)
@example(state=2, version=1, epoch=32767, start_time_ms=1, tags={"next": 0, "client": 2})
def test_the_record_that_completes_a_transaction_is_that_of_kafka(
    kafka: JavaServer,
    state: int,
    version: int,
    epoch: int,
    start_time_ms: int,
    tags: dict[str, int],
) -> None:
    value = value_of(
        state=state,
        version=version,
        producer_epoch=epoch,
        start_time_ms=start_time_ms,
        tags=tags,
    )
    said = kafka.ask_words(["complete", _word(key_of("a")), _word(value)])
    (prepared,) = read([(key_of("a"), value)]).transactions
    assert completion_of(prepared) == (key_of("a"), base64.b64decode(said["value"]))
