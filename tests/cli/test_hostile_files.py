"""``kdump dump-segment`` handles any content of a file, in every output format."""

from __future__ import annotations

import base64
import itertools
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.message_sets import encode_message, message_07
from builders.samples import at_some_or_all, moments_of
from kdump.formats import producer_snapshot
from kdump.formats.compression import Codec, compress

CHANGES = 100
"""Random changes of one to three bytes made to each sample, after its truncations."""

READABLE = {0, 4}
"""The exit statuses of a file that could be read, whole or damaged."""


def sample_log(codec: Codec) -> bytes:
    first = batch(
        [record(0, b"k", b"v", headers=[(b"h", None)]), record(1, None, b"")], codec=codec
    )
    second = batch([record(5, b"\xff", b"\xed\xa0\x80")], producer_id=7, producer_epoch=0)
    return first + second


def sample_message_sets() -> bytes:
    plain = encode_message(0, b"k", b"v", magic=0)
    inner = encode_message(1, b"k", b"v", magic=1)
    packed = compress(Codec.GZIP, inner, magic=1)
    return plain + encode_message(1, None, packed, magic=1, attributes=Codec.GZIP)


def sample_control_batch(control_type: int, value: bytes) -> bytes:
    key = struct.pack(">hh", 0, control_type)
    return batch([record(0, key, value)], attributes=0x30, producer_id=3, producer_epoch=1)


def sample_0_7_log() -> bytes:
    packed = compress(Codec.SNAPPY, message_07(b"inner"), magic=1)
    wrapper = message_07(packed, attributes=Codec.SNAPPY)
    return message_07(b"plain", magic=0) + wrapper


INDEX_ENTRIES = struct.pack(">iiii", 1, 0, 5, 77)
TIME_INDEX_ENTRIES = struct.pack(">qiqi", 1_767_225_600_001, 1, 1_767_225_600_005, 5)
PRODUCERS = producer_snapshot.decode(bytes.fromhex("0001 00000000 00000001") + bytes(range(46)))

BASE = f"{0:020d}"
SAMPLES: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    **{
        f"log, {codec.label}": (f"{BASE}.log", sample_log(codec), ("--print-data-log",))
        for codec in Codec
    },
    "message sets": (f"{BASE}.log", sample_message_sets(), ("--print-data-log",)),
    "commit marker": (
        f"{BASE}.log",
        sample_control_batch(1, bytes(6)),
        ("--deep-iteration",),
    ),
    "leader change": (
        f"{BASE}.log",
        sample_control_batch(2, bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00")),
        ("--deep-iteration",),
    ),
    "0.7 log": (f"{BASE}.kafka", sample_0_7_log(), ("--print-data-log",)),
    "KRaft snapshot": ("bootstrap.checkpoint", sample_log(Codec.NONE), ("--deep-iteration",)),
    "offset index": (f"{BASE}.index", INDEX_ENTRIES, ()),
    "offset index, verified": (f"{BASE}.index", INDEX_ENTRIES, ("--verify-index-only",)),
    "time index": (f"{BASE}.timeindex", TIME_INDEX_ENTRIES, ()),
    "time index, sanity": (f"{BASE}.timeindex", TIME_INDEX_ENTRIES, ("--index-sanity-check",)),
    "transaction index": (f"{BASE}.txnindex", struct.pack(">hqqqq", 0, 7, 5, 6, 5), ()),
    "producer snapshot": (
        f"{BASE}.snapshot",
        producer_snapshot.encode(PRODUCERS.entries),
        (),
    ),
    "offset checkpoint": ("recovery-point-offset-checkpoint", b"0\n1\ntopic 0 15\n", ()),
    "epoch checkpoint": ("leader-epoch-checkpoint", b"0\n2\n0 0\n1 5\n", ()),
    "clean shutdown marker": (".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":9}', ()),
    "partition.metadata": (
        "partition.metadata",
        b"version: 0\ntopic_id: FhPzZyzqQYGQ_0X0Sk3oNA",
        (),
    ),
    "meta.properties": ("meta.properties", b"version=1\nnode.id=1\ncluster.id=\\u0041b\n", ()),
}

OUTPUTS = ("text", "jsonl", "json", "csv", "table")


def damages(rng: random.Random, sample: bytes, *, is_all: bool) -> Iterator[bytes]:
    sizes = moments_of(range(len(sample) + 1), is_all=is_all, samples=40)
    yield from (sample[:size] for size in sizes)
    for _ in range(CHANGES if is_all else CHANGES // 4):
        changed = bytearray(sample)
        for _ in range(rng.randrange(1, 4)):
            value = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            changed[rng.randrange(len(changed))] = value
        yield bytes(changed)


@pytest.mark.slow
@at_some_or_all
@pytest.mark.parametrize("kind", SAMPLES)
def test_damage_ends_a_dump_only_with_an_exit_status(
    tmp_path: Path, kind: str, is_all: bool
) -> None:
    name, sample, options = SAMPLES[kind]
    for file, content in (
        (f"{BASE}.log", sample_log(Codec.NONE)),
        (f"{BASE}.index", INDEX_ENTRIES),
    ):
        (tmp_path / file).write_bytes(content)
    ways = itertools.cycle(itertools.product(OUTPUTS, ((), ("--follow-bad",))))
    for content in damages(random.Random(kind), sample, is_all=is_all):
        (tmp_path / name).write_bytes(content)
        output, more = next(ways)
        outcome = run_kdump(["dump-segment", "--output", output, *options, *more, name], tmp_path)
        shown = f"{content.hex()} as {output}: {outcome.stderr.decode(errors='replace')}"
        assert outcome.exit_status in READABLE, shown
        assert (tmp_path / name).read_bytes() == content, shown
        if output == "jsonl":
            assert objects(outcome.stdout) is not None


@pytest.mark.parametrize(
    ("topic", "decoder"),
    [
        ("__consumer_offsets", "--offsets-decoder"),
        ("__transaction_state", "--transaction-log-decoder"),
        ("__share_group_state", "--share-group-state-decoder"),
    ],
)
def test_damaged_internal_records_end_a_dump_only_with_an_exit_status(
    tmp_path: Path, fixtures: Path, topic: str, decoder: str
) -> None:
    rng = random.Random(topic)
    rows = [
        json.loads(line)
        for path in sorted(fixtures.glob(f"out/expected*/{topic}-*.uncommitted.jsonl"))
        for line in path.read_text().splitlines()
    ]
    for number in range(40):
        records = []
        for offset, row in enumerate(rng.choices(rows, k=10)):
            key, value = (base64.b64decode(row[name] or "") for name in ("key", "value"))
            records.append(record(offset, damaged(rng, key), damaged(rng, value)))
        (tmp_path / f"{BASE}.log").write_bytes(batch(records))
        output = OUTPUTS[number % len(OUTPUTS)]
        outcome = run_kdump(["dump-segment", decoder, "--output", output, f"{BASE}.log"], tmp_path)
        assert outcome.exit_status in READABLE, outcome.stderr.decode()


def damaged(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randrange(3)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.choice([None, None, None, rng.randrange(len(changed) + 1)])])
