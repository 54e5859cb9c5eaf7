"""Records of every type and version in Kafka's internal topics, compared with Kafka's parsers."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest

from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import DECODERS, control_record_text

pytestmark = pytest.mark.differential

SEED = 1
SAMPLES = 60

GAVE_UP = "!"


def test_all_records_are_printed_as_kafka_prints_them(java_classpath: str) -> None:
    seen = Counter[str]()
    for line in samples(java_classpath):
        decoder, offset, key, value, key_text, payload_text = line.split("\t")
        expected = (
            GAVE_UP
            if GAVE_UP in (key_text, payload_text)
            else (text_of(key_text), text_of(payload_text))
        )
        printed = printed_by_kdump(decoder, bytes_of(key), bytes_of(value), int(offset))
        assert printed == expected, f"{decoder}, key {key}, value {value}"
        seen[decoder] += 1
    assert seen.keys() == {*DECODERS, "control"}
    assert min(seen.values()) >= SAMPLES


def samples(java_classpath: str) -> Iterator[str]:
    # The optimizing compiler does not pay off for a short program.
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", java_classpath]
    done = subprocess.run(
        [*java, "SchemaSamples", str(SEED), str(SAMPLES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    yield from done.stdout.splitlines()


def printed_by_kdump(
    decoder: str, key: bytes | None, value: bytes | None, offset: int
) -> str | tuple[str | None, str | None]:
    try:
        if decoder == "control":
            return None, control_record_text(key, value)
        parsed = DECODERS[decoder](key, value, offset)
    except FormatError:
        return GAVE_UP
    return parsed.key_text, parsed.payload_text


def bytes_of(column: str) -> bytes | None:
    return None if column == "-" else bytes.fromhex(column.removeprefix("x"))


def text_of(column: str) -> str | None:
    data = bytes_of(column)
    return None if data is None else data.decode()
