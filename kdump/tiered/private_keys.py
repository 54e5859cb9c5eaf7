"""Data keys of encrypted remote segments, decrypted with an RSA private key.

Aiven's plugin encrypts data keys with OAEP over SHA3-512 (``RsaEncryptionProvider``), which
``cryptography`` does not offer, so the padding is removed here.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

from kdump.errors import KdumpError, reason_of
from kdump.storage.location import Location

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HASH = hashlib.sha3_512
_HASH_BYTES = _HASH().digest_size
_KEY_BYTES = frozenset({16, 24, 32})
"""The sizes of keys of AES."""


class PrivateKeyError(KdumpError):
    """A private key cannot be used."""


def data_key(private_key: Location, encrypted: bytes) -> bytes:
    """Decrypt a data key.

    Args:
        private_key: a PEM file with an RSA key in PKCS #8, without a password.
        encrypted: the data key as a manifest has it.

    Raises:
        PrivateKeyError: ``cryptography`` is not installed, the file is no such key, or the data key
            was encrypted with another one.
    """
    try:
        pem = private_key.read()
    except OSError as failure:
        raise PrivateKeyError(f"{private_key}: {reason_of(failure)}") from failure
    numbers = _numbers(private_key, pem)
    size = (numbers.public_numbers.n.bit_length() + 7) // 8
    if len(encrypted) != size:
        raise PrivateKeyError(f"{private_key}: not the key that the segment was encrypted with")
    padded = _decrypted(int.from_bytes(encrypted, "big"), numbers).to_bytes(size, "big")
    seed = _xor(padded[1 : 1 + _HASH_BYTES], _mask(padded[1 + _HASH_BYTES :], _HASH_BYTES))
    block = padded[1 + _HASH_BYTES :]
    block = _xor(block, _mask(seed, len(block)))
    label, _, key = block[:_HASH_BYTES], *block[_HASH_BYTES:].lstrip(b"\0").partition(b"\1")[1:]
    if padded[0] or label != _HASH().digest() or len(key) not in _KEY_BYTES:
        raise PrivateKeyError(f"{private_key}: not the key that the segment was encrypted with")
    return key


def _decrypted(block: int, numbers: RSAPrivateNumbers) -> int:
    """RSA, by the Chinese remainder theorem (RFC 8017, 5.1.2), which is four times as fast."""
    first = pow(block, numbers.dmp1, numbers.p)
    second = pow(block, numbers.dmq1, numbers.q)
    return second + numbers.q * ((first - second) * numbers.iqmp % numbers.p)


@functools.lru_cache(maxsize=8)
def _numbers(private_key: Location, pem: bytes) -> RSAPrivateNumbers:
    """The numbers of a key, which is checked once: that takes a third of a second."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise PrivateKeyError(
            "encrypted segments need the package cryptography:"
            " pip install 'kafka-kdump[encryption]'"
        ) from None
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise PrivateKeyError(
            f"{private_key}: not a private key in PEM without a password"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise PrivateKeyError(f"{private_key}: not an RSA key")
    return key.private_numbers()


def _mask(seed: bytes, size: int) -> bytes:
    """The mask generation function MGF1."""
    blocks = range(-(-size // _HASH_BYTES))
    return b"".join(_HASH(seed + block.to_bytes(4, "big")).digest() for block in blocks)[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def chunk_cipher(key: bytes) -> AESGCM:
    """The cipher of chunks and indexes."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
