"""Segments in the layout of Aiven's plugin are read as those in the layout of Kafka.

Those in ``fixtures/aiven.tar.xz`` were stored by the plugin's own classes, the others by the tests'
own writer.
"""

from __future__ import annotations

import base64
import contextlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from hypothesis import given
from hypothesis import strategies as st

from builders.aiven_objects import AivenWriter, encode_sizes, new_key, pem_of, wrap
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.tiered_fixture import TieredFixture, records_by_partition
from kdump.errors import KdumpError
from kdump.formats.codecs import zstd_frames
from kdump.formats.errors import FormatError
from kdump.formats.remote_names import RemoteFileKind
from kdump.formats.segment_manifest import decode_chunk_sizes, decode_segment_manifest

TOPICS = ("cut", "kept", "moved", "orders", "plain", "tx")
LEVEL = "read_uncommitted"


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return new_key()


@pytest.fixture(scope="module")
def pem(key: RSAPrivateKey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "private.pem"
    path.write_bytes(pem_of(key))
    return path


def stored(tiered: TieredFixture, folder: Path, writer: AivenWriter) -> Path:
    prefix = folder / "prefix"
    writer.write(tiered.remote / "kafka-tiered-storage", prefix)
    return prefix


def kdump(*words: str | Path) -> Outcome:
    return run_kdump([str(word) for word in words], Path.cwd())


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_records_are_those_of_the_consumer(
    tiered: TieredFixture,
    tmp_path: Path,
    key: RSAPrivateKey,
    pem: Path,
    is_compressed: bool,
    is_encrypted: bool,
) -> None:
    writer = AivenWriter(500, is_compressed, key if is_encrypted else None)
    options = {"remote": str(stored(tiered, tmp_path, writer))}
    if is_encrypted:
        options["privateKey"] = str(pem)
    assert records_by_partition(TOPICS, tiered.leader, **options) == tiered.consumed(LEVEL)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("variant", ["plain", "compressed", "encrypted", "both"])
def test_objects_of_the_plugin_have_the_records_of_the_consumer(
    tiered: TieredFixture, fixtures: Path, variant: str, level: str
) -> None:
    stored = fixtures / "aiven"
    options = {"remote": str(stored / variant / "kafka"), "kafka.isolation.level": level}
    if variant in ("encrypted", "both"):
        options["privateKey"] = str(stored / "private.pem")
    topics = ("orders", "tx")
    consumed = tiered.consumed(level)
    wanted = {name: each for name, each in consumed.items() if name.rpartition("-")[0] in topics}
    assert records_by_partition(topics, tiered.leader, **options) == wanted


@pytest.mark.parametrize("variant", ["plain", "both"])
def test_objects_of_the_plugin_are_valid(
    tiered: TieredFixture, fixtures: Path, variant: str
) -> None:
    remote = fixtures / "aiven" / variant / "kafka"
    words = ("--private-key", fixtures / "aiven" / "private.pem", "--output", "jsonl")
    stored = kdump("verify", "--remote", remote, *words, remote)
    first = ("--topic", "orders", "--topic", "tx", "--output", "jsonl")
    raw = kdump("verify", "--remote", tiered.remote, *first, tiered.remote)
    totals = ("batches", "records", "segments", "partitions")
    (ours,), (theirs,) = (
        [row for row in objects(each.stdout) if row["type"] == "summary"] for each in (stored, raw)
    )
    assert (stored.exit_status, stored.stderr) == (0, b"")
    assert [ours[name] for name in totals] == [theirs[name] for name in totals]


def test_chunks_that_claim_more_than_fits_into_memory_are_not_decoded(
    tiered: TieredFixture, tmp_path: Path
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(is_compressed=True))
    manifest = min(remote.glob("orders-*/0/*.rsm-manifest"))
    document = json.loads(manifest.read_text())
    document["chunkIndex"] |= {
        "type": "fixed",
        "originalChunkSize": 2**31 - 1,
        "originalFileSize": 2**31 - 1,
        "transformedChunkSize": 2**31 - 1,
        "finalTransformedChunkSize": 2**31 - 1,
    }
    manifest.write_text(json.dumps(document))
    tracemalloc.start()
    try:
        outcome = kdump("verify", "--engine", "local", "--remote", remote, remote)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100 << 20
    assert b"at most 128 MiB are decoded" in outcome.stdout
    assert outcome.exit_status & 8


def test_a_plain_log_that_ends_early_is_an_error(tiered: TieredFixture, tmp_path: Path) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(chunk_bytes=10_000))
    log = min(remote.glob("orders-*/0/*.log"))
    log.write_bytes(log.read_bytes()[:-9])
    with pytest.raises((KdumpError, OSError), match="it ends before the log does"):
        records_by_partition(("orders",), tiered.leader, remote=str(remote))


@pytest.mark.parametrize("chunk_bytes", [7, 4096])
def test_chunks_of_any_size_are_joined(
    tiered: TieredFixture, tmp_path: Path, chunk_bytes: int
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(chunk_bytes, is_compressed=chunk_bytes > 7))
    found = records_by_partition(("tx",), tiered.leader, remote=str(remote))
    assert found["tx-0"] == tiered.consumed(LEVEL)["tx-0"]


def test_ls_and_verify_find_the_same_in_both_layouts(
    tiered: TieredFixture, tmp_path: Path, key: RSAPrivateKey, pem: Path
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, is_compressed=True, key=key))

    counts = ("records", "log_end_offset", "remote_log_bytes")

    def found(command: str, place: Path) -> list[object]:
        words = (command, "--output", "jsonl", "--remote", place, "--private-key", pem)
        rows = objects(kdump(*words, tiered.leader).stdout)
        return [[row.get(name) for name in ("type", "directory", "code", *counts)] for row in rows]

    assert found("ls", remote) == found("ls", tiered.remote)
    assert found("verify", remote) == found("verify", tiered.remote)


def test_encrypted_segments_need_the_right_key(
    tiered: TieredFixture, tmp_path: Path, key: RSAPrivateKey
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, key=key))
    other = tmp_path / "other.pem"
    other.write_bytes(pem_of(new_key()))
    words = ("ls", "--topic", "tx", "--remote", remote)
    without = kdump(*words, tiered.leader)
    assert without.exit_status == 8
    assert b"--private-key" in without.stderr
    wrong = kdump(*words, "--private-key", other, tiered.leader)
    assert wrong.exit_status == 8
    assert b"not the key" in wrong.stderr
    with pytest.raises(KdumpError, match="private-key"):
        records_by_partition(("tx",), tiered.leader, remote=str(remote))


def test_a_private_key_without_a_remote_place_is_refused(tiered: TieredFixture, pem: Path) -> None:
    assert kdump("ls", "--private-key", pem, tiered.leader).exit_status == 16


Change = Callable[[Path], None]


def cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-3])


def flip(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)


def garble_manifest(log: Path) -> None:
    log.with_suffix(".rsm-manifest").write_text('{"version": "1"')


def drop_manifest(log: Path) -> None:
    log.with_suffix(".rsm-manifest").unlink()


@pytest.mark.parametrize("change", [cut, flip, garble_manifest, drop_manifest])
def test_damage_is_found_and_stops_the_reading(
    tiered: TieredFixture, tmp_path: Path, change: Change
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, is_compressed=True))
    log = max(remote.glob("cut-*/0/*.log"))
    change(log)
    words = ("--topic", "cut", "--remote", remote, tiered.leader)
    outcome = kdump("verify", "--output", "jsonl", *words)
    assert outcome.exit_status & 12
    named = [row for row in objects(outcome.stdout) if row["type"] == "finding"]
    assert any(log.stem in row["path"] for row in named)
    with pytest.raises((KdumpError, OSError)):
        records_by_partition(("cut",), tiered.leader, remote=str(remote))


Document = dict[str, Any]


def encoded(data: bytes) -> str:
    return base64.b64encode(zstd_frames.compress(data, 2)).decode()


def chunks(**fields: Any) -> Callable[[Document], None]:
    return lambda document: document["chunkIndex"].update(fields)


def index(**fields: int) -> Callable[[Document], None]:
    return lambda document: document["segmentIndexes"]["offset"].update(fields)


def offsets(**fields: int) -> Callable[[Document], None]:
    return lambda document: document["remoteLogSegmentMetadata"].update(fields)


FIXED: Final[Document] = {"type": "fixed", "originalFileSize": 2**31 - 1}
ONE: Final = (1).to_bytes(4, "big")
NEGATIVE: Final = (-10).to_bytes(4, "big", signed=True)
HOSTILE: Final[dict[str, Callable[[Document], None]]] = {
    "one negative size": chunks(transformedChunks=encoded(ONE + NEGATIVE), originalFileSize=400),
    "negative sizes": chunks(
        transformedChunks=encoded((3).to_bytes(4, "big") + NEGATIVE + b"\1\1\1" + ONE)
    ),
    "other number of chunks": chunks(transformedChunks=encoded(encode_sizes([5, 7]))),
    "no chunk": chunks(transformedChunks=encoded(bytes(4)), originalFileSize=0),
    "no base64": chunks(transformedChunks="*"),
    "no zstd": chunks(transformedChunks="aGVsbG8="),
    "chunks of one byte": chunks(
        **FIXED, originalChunkSize=1, transformedChunkSize=1, finalTransformedChunkSize=1
    ),
    "chunks of gigabytes": chunks(
        **FIXED,
        originalChunkSize=2**31 - 1,
        transformedChunkSize=2**31 - 1,
        finalTransformedChunkSize=5,
    ),
    "not compressed": lambda document: document.update(compression=False),
    "index past the end": index(position=2**31 - 1, size=2**31 - 1),
    "index of gigabytes": index(position=0, size=2**31 - 1),
    "other start": offsets(startOffset=2**62),
    "other end": offsets(endOffset=3),
    "a list": lambda document: document.update(chunkIndex=[]),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_a_manifest_that_lies_is_found(tiered: TieredFixture, tmp_path: Path, change: str) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, is_compressed=True))
    manifest = max(remote.glob("cut-*/0/*.rsm-manifest"))
    document = json.loads(manifest.read_text())
    HOSTILE[change](document)
    manifest.write_text(json.dumps(document))
    outcome = kdump("verify", "--topic", "cut", "--remote", remote, tiered.leader)
    assert outcome.exit_status & 12
    assert manifest.stem in outcome.stdout.decode()


def test_a_manifest_that_changed_is_read_again(tiered: TieredFixture, tmp_path: Path) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, is_compressed=True))
    words = ("verify", "--topic", "cut", "--remote", remote, tiered.leader)
    assert kdump(*words).exit_status == 0
    max(remote.glob("cut-*/0/*.rsm-manifest")).write_text("{}")
    assert kdump(*words).exit_status & 12


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_flipped_bit_loses_the_records_of_its_chunk_only(
    tiered: TieredFixture, tmp_path: Path, key: RSAPrivateKey, pem: Path, is_compressed: bool
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, is_compressed, key=key))
    log = min(remote.glob("cut-*/0/*00000000044-*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1  # in the first of three chunks
    log.write_bytes(content)
    found = records_by_partition(
        ("cut",), tiered.leader, remote=str(remote), privateKey=str(pem), mode="DROPMALFORMED"
    )
    expected = tiered.consumed(LEVEL)["cut-0"]
    lost = sorted({each[0] for each in expected} - {each[0] for each in found["cut-0"]})
    assert lost == list(range(44, lost[-1] + 1))
    assert lost[-1] < 54
    assert found["cut-0"] == [each for each in expected if each[0] not in lost]
    words = ("--topic", "cut", "--remote", remote, "--private-key", pem, tiered.leader)
    assert kdump("verify", *words).exit_status == 4


def test_encrypted_chunks_cannot_be_exchanged_or_cut(
    tiered: TieredFixture, tmp_path: Path, key: RSAPrivateKey, pem: Path
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, key=key))
    log = max(remote.glob("cut-*/0/*.log"))
    whole = log.read_bytes()
    size = 500 + 28
    words = ("--topic", "cut", "--remote", remote, "--private-key", pem, tiered.leader)
    for data in (
        whole[size : 2 * size] + whole[:size] + whole[2 * size :],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole[:-1],
    ):
        log.write_bytes(data)
        assert kdump("verify", *words).exit_status & 12
        with pytest.raises((KdumpError, OSError)):
            records_by_partition(("cut",), tiered.leader, remote=str(remote), privateKey=str(pem))


def test_a_data_key_that_is_no_key_of_aes_is_refused(
    tiered: TieredFixture, tmp_path: Path, key: RSAPrivateKey, pem: Path
) -> None:
    remote = stored(tiered, tmp_path, AivenWriter(500, key=key))
    for manifest in remote.glob("cut-*/0/*.rsm-manifest"):
        document = json.loads(manifest.read_text())
        wrapped = base64.b64encode(wrap(key, b"short")).decode()
        document["encryption"]["dataKey"] = f"key-1:{wrapped}"
        manifest.write_text(json.dumps(document))
    words = ("--topic", "cut", "--remote", remote, "--private-key", pem, tiered.leader)
    for command in ("ls", "verify"):
        outcome = kdump(command, *words)
        assert outcome.exit_status == 8
        assert b"not the key that the segment was encrypted with" in outcome.stderr


@given(st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_the_sizes_of_chunks_are_decoded(sizes: list[int]) -> None:
    assert decode_chunk_sizes(zstd_frames.compress(encode_sizes(sizes), 2)) == sizes


@given(st.binary())
def test_any_bytes_are_sizes_or_an_error(data: bytes) -> None:
    for tried in (data, zstd_frames.compress(data, 2)):
        with contextlib.suppress(FormatError):
            decode_chunk_sizes(tried)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "chunkIndex", "type", "segmentIndexes", "offset", "0"]),
            inner,
        )
    ),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_manifest_or_an_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        decode_segment_manifest(data)


def test_a_deeply_nested_manifest_is_an_error() -> None:
    with pytest.raises(FormatError):
        decode_segment_manifest(b'{"a":' * 100_000)


def test_a_manifest_cannot_claim_more_memory_than_it_has() -> None:
    claimed = zstd_frames.compress((2**31 - 1).to_bytes(4, "big") + bytes(4) + b"\4", 2)
    with pytest.raises(FormatError):
        decode_chunk_sizes(claimed)


def test_a_manifest_as_the_plugin_documents_it_is_decoded() -> None:
    document = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": 100,
            "originalFileSize": 1000,
            "transformedChunkSize": 110,
            "finalTransformedChunkSize": 110,
        },
        "segmentIndexes": {
            "offset": {"position": 0, "size": 1},
            "timestamp": {"position": 1, "size": 1},
            "producerSnapshot": {"position": 2, "size": 1},
            "leaderEpoch": {"position": 3, "size": 1},
            "transaction": None,
        },
        "compression": False,
        "remoteLogSegmentMetadata": {
            "startOffset": 0,
            "endOffset": 1000,
            "segmentLeaderEpochs": {"0": 100, "10": 300, "2": 200},
        },
    }
    manifest = decode_segment_manifest(json.dumps(document).encode())
    assert [manifest.chunks.stored(number).position for number in (0, 1, 9)] == [0, 110, 990]
    assert [each.epoch for each in manifest.leader_epochs] == [0, 2, 10]
    assert RemoteFileKind.TRANSACTION_INDEX not in manifest.indexes
    assert manifest.encryption is None
