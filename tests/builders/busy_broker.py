"""A busy broker: clients write, segments roll, are cleaned and deleted, topics come and go."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

KEYS: Final = 97
PROPERTIES: Final = {
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.cleaner.backoff.ms": "50",
}
"""Of a broker that cleans and deletes all the time."""
_PATIENCE_S: Final = 120
_RECORDS: Final = 50
"""Of a topic that a producer sends at once; in a transaction."""
_SEGMENTS: Final = {
    "segment.bytes": "1048576",
    "segment.ms": "1000",
    "file.delete.delay.ms": "300",
    "index.interval.bytes": "512",
}
_CLEANED: Final = {"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
TOPICS: Final = {
    "events": _SEGMENTS | {"retention.bytes": "200000"},
    "keyed": _SEGMENTS | _CLEANED | {"cleanup.policy": "compact"},
    "ledger": _SEGMENTS
    | _CLEANED
    | {"cleanup.policy": "compact,delete", "retention.bytes": "200000"},
}
"""Configurations: ``events`` only loses its first records, ``ledger`` has transactions."""


@contextlib.contextmanager
def busy(
    address: str, replicas: int = 1, *, most_rounds: Callable[[], float] = lambda: math.inf
) -> Iterator[None]:
    """Keep a broker busy; the topics that stay have so many replicas.

    Each of these has records that a consumer gets, however slow the machine is. ``most_rounds``
    says how many times each producer may have sent its records by now, at least twice.
    """
    admin = AdminClient(connection(address))
    known = admin.list_topics(timeout=_PATIENCE_S).topics
    new = [
        NewTopic(name, 3, replicas, config=each)
        for name, each in TOPICS.items()
        if name not in known
    ]
    for created in admin.create_topics(new).values() if new else ():
        created.result()
    stop = threading.Event()
    rounds = _Rounds(stop, most_rounds)
    written, committed = threading.Event(), threading.Event()
    tasks: tuple[Callable[[], None], ...] = (
        lambda: _produce(address, rounds, written),
        lambda: _produce_transactions(address, rounds, committed),
        lambda: _create_and_delete(address, stop),
    )
    threads = [threading.Thread(target=task) for task in tasks]
    for each in threads:
        each.start()
    try:
        assert written.wait(_PATIENCE_S), f"no records in {_PATIENCE_S} s"
        assert committed.wait(_PATIENCE_S), f"no committed transaction in {_PATIENCE_S} s"
        yield
    finally:
        stop.set()
        for each in threads:
            each.join()


def value_of(number: int) -> bytes:
    """The value of the record with a number; its key is the number modulo :data:`KEYS`."""
    return b"%d:" % number + b"x" * (number % 700)


@dataclass(frozen=True, slots=True)
class _Rounds:
    """When a producer sends records, and the number of the first."""

    stop: threading.Event
    most: Callable[[], float]

    def __iter__(self) -> Iterator[int]:
        for number in itertools.count():
            while number >= self.most() and not self.stop.is_set():
                time.sleep(0.02)
            if self.stop.is_set():
                return
            yield number * _RECORDS


def connection(address: str) -> dict[str, Any]:
    """How to connect, without a word about topics that are gone.

    Clients log to standard error, which may be that of a command that runs meanwhile.
    """
    return {"bootstrap.servers": address, "log_level": 0}


def _send(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers:
        producer.produce(topic, key=b"%d" % (number % KEYS), value=value_of(number))
    producer.poll(0)


def _produce(address: str, rounds: _Rounds, written: threading.Event) -> None:
    producer = Producer(connection(address) | {"enable.idempotence": True, "linger.ms": 5})
    for start in rounds:
        for topic in ("events", "keyed"):
            _send(producer, topic, range(start, start + _RECORDS))
        if not start:
            producer.flush()
            written.set()
        time.sleep(0.02)
    producer.flush()


def _produce_transactions(address: str, rounds: _Rounds, committed: threading.Event) -> None:
    producer: Producer | None = None
    for start in rounds:
        if producer is None:
            producer = Producer(connection(address) | {"transactional.id": "busy"})
            producer.init_transactions()
        producer.begin_transaction()
        _send(producer, "ledger", range(start, start + _RECORDS))
        try:
            if start % (3 * _RECORDS):
                producer.commit_transaction()
                committed.set()
            else:
                producer.abort_transaction()
        except KafkaException as failure:
            # A slow broker may refuse the end of a transaction that the client asks for again.
            if not failure.args[0].fatal():
                raise
            producer = None
        time.sleep(0.05)


def _create_and_delete(address: str, stop: threading.Event) -> None:
    admin = AdminClient(connection(address))
    producer = Producer(connection(address))
    for number in itertools.count():
        name = f"brief-{number}"
        for created in admin.create_topics([NewTopic(name, 2, 1)]).values():
            created.result()
        _send(producer, name, range(100))
        producer.flush()
        time.sleep(0.3)
        for deleted in admin.delete_topics([name]).values():
            deleted.result()
        if stop.is_set():
            break
