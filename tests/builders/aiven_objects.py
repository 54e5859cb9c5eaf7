"""Write remote segments as Aiven's plugin stores them, from the description of its format."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from kdump.formats.checkpoints import decode_leader_epoch_checkpoint
from kdump.log.headers import batch_spans
from kdump.storage.local_disk import local

_INDEXES = {
    "offset": ".index",
    "timestamp": ".timeindex",
    "producerSnapshot": ".snapshot",
    "leaderEpoch": ".leader_epoch_checkpoint",
    "transaction": ".txnindex",
}
_KEY = b"k" * 32
_ADDITIONAL = b"a" * 32


@dataclass(frozen=True, slots=True)
class AivenWriter:
    """Stores the segments of a ``LocalTieredStorage``.

    Attributes:
        chunk_bytes: the size of chunks before they are changed.
        is_compressed: whether chunks are compressed.
        key: encrypts data keys; None to encrypt nothing.
    """

    chunk_bytes: int = 500
    is_compressed: bool = False
    key: RSAPrivateKey | None = None

    def write(self, source: Path, target: Path) -> None:
        """Store all segments of ``source``, which has a directory for each partition."""
        for partition in sorted(source.iterdir()):
            name, topic_id = partition.name[:-23], partition.name[-22:]
            topic, _, number = name.rpartition("-")
            folder = target / f"{topic}-{topic_id}" / number
            folder.mkdir(parents=True)
            for log in sorted(partition.glob("*.log")):
                self._write_segment(log, folder, (topic, int(number), topic_id))

    def _write_segment(self, log: Path, folder: Path, owner: tuple[str, int, str]) -> None:
        data = log.read_bytes()
        chunks = [
            self._stored(data[at : at + self.chunk_bytes])
            for at in range(0, len(data), self.chunk_bytes)
        ]
        (folder / log.name).write_bytes(b"".join(chunks))
        indexes: dict[str, dict[str, int] | None] = {}
        position = 0
        with (folder / f"{log.stem}.indexes").open("wb") as file:
            for name, suffix in _INDEXES.items():
                path = log.with_suffix(suffix)
                if not path.exists():
                    indexes[name] = None
                    continue
                stored = self._encrypted(path.read_bytes())
                indexes[name] = {"position": position, "size": len(stored)}
                position += file.write(stored)
        document = {
            "version": "1",
            "chunkIndex": self._chunk_index(len(data), [len(chunk) for chunk in chunks]),
            "segmentIndexes": indexes,
            "compression": self.is_compressed,
            "remoteLogSegmentMetadata": _metadata(log, owner),
        }
        if self.key is not None:
            wrapped = base64.b64encode(wrap(self.key, _KEY)).decode()
            aad = base64.b64encode(_ADDITIONAL).decode()
            document["encryption"] = {"dataKey": f"key-1:{wrapped}", "aad": aad}
        (folder / f"{log.stem}.rsm-manifest").write_text(json.dumps(document))

    def _stored(self, chunk: bytes) -> bytes:
        if self.is_compressed:
            chunk = zstandard.ZstdCompressor().compress(chunk)
        return self._encrypted(chunk)

    def _encrypted(self, data: bytes) -> bytes:
        if self.key is None:
            return data
        iv = os.urandom(12)
        return iv + AESGCM(_KEY).encrypt(iv, data, _ADDITIONAL)

    def _chunk_index(self, log_bytes: int, sizes: list[int]) -> dict[str, Any]:
        common = {"originalChunkSize": self.chunk_bytes, "originalFileSize": log_bytes}
        if self.is_compressed:
            encoded = zstandard.ZstdCompressor().compress(encode_sizes(sizes))
            chunks = base64.b64encode(encoded).decode()
            return {"type": "variable", **common, "transformedChunks": chunks}
        return {
            "type": "fixed",
            **common,
            "transformedChunkSize": sizes[0],
            "finalTransformedChunkSize": sizes[-1],
        }


def _metadata(log: Path, owner: tuple[str, int, str]) -> dict[str, Any]:
    with local(log).open_file() as file:
        last = list(batch_spans(file))[-1].last_offset
    topic, number, topic_id = owner
    start = int(log.name[:20])
    epochs = decode_leader_epoch_checkpoint(
        log.with_suffix(".leader_epoch_checkpoint").read_bytes()
    )
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": topic_id,
                "topicPartition": {"topic": topic, "partition": number},
            },
            "id": log.stem[21:],
        },
        "startOffset": start,
        "endOffset": last,
        "maxTimestampMs": 0,
        "brokerId": 1,
        "eventTimestampMs": 0,
        "segmentLeaderEpochs": {str(each.epoch): max(start, each.start_offset) for each in epochs},
    }


def encode_sizes(sizes: list[int]) -> bytes:
    """Encode the sizes of chunks as ``ChunkSizesBinaryCodec`` does."""
    count = len(sizes).to_bytes(4, "big")
    if len(sizes) < 2:
        return count + b"".join(size.to_bytes(4, "big") for size in sizes)
    base = min(sizes[:-1])
    width = max(1, max((size - base).bit_length() + 7 for size in sizes[:-1]) // 8)
    deltas = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    last = sizes[-1].to_bytes(4, "big")
    return count + base.to_bytes(4, "big") + bytes([width]) + deltas + last


def wrap(key: RSAPrivateKey, data: bytes) -> bytes:
    """Encrypt with RSA and OAEP over SHA3-512 (RFC 8017, 7.1.1)."""
    numbers = key.public_key().public_numbers()
    size, digest = (numbers.n.bit_length() + 7) // 8, hashlib.sha3_512
    block = digest().digest() + bytes(size - len(data) - 2 * 64 - 2) + b"\1" + data
    seed = os.urandom(64)
    masked = _xor(block, _mask(seed, len(block)))
    padded = b"\0" + _xor(seed, _mask(masked, 64)) + masked
    return pow(int.from_bytes(padded, "big"), numbers.e, numbers.n).to_bytes(size, "big")


def _mask(seed: bytes, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += hashlib.sha3_512(seed + (len(found) // 64).to_bytes(4, "big")).digest()
    return found[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def new_key() -> RSAPrivateKey:
    """Generate a key."""
    return generate_private_key(public_exponent=65537, key_size=2048)


def pem_of(key: RSAPrivateKey) -> bytes:
    """Return a key in PKCS #8, in PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
