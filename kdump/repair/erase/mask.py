"""Records that stay without what they say: for those who need the row, but not the person.

A masked record has its offset, its time, a hash in place of its key, and a value and header values
as long as before, of :data:`FILLER` only. What is null stays null. The result depends on the record
and the secret alone, so equal replicas stay equal, and records of one key still have one key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import UsageProblem
from kdump.formats.record_batch import Record, RecordHeader

FILLER: Final = b"*"
"""Overwrites the bytes of values."""


class Mask(Struct, frozen=True):
    """Masks records.

    Attributes:
        secret: who knows it can compute the hash of a key; empty for everybody.
    """

    secret: bytes = b""

    def record(self, record: Record) -> Record:
        """What is written instead of a record."""
        return replace(
            record,
            key=None if record.key is None else self.key(record.key),
            value=_filled(record.value),
            headers=tuple(RecordHeader(each.key, _filled(each.value)) for each in record.headers),
        )

    def key(self, key: bytes) -> bytes:
        """The SHA-256 of a key, or its HMAC-SHA256 under the secret, in hexadecimal."""
        if self.secret:
            return hmac.digest(self.secret, key, "sha256").hex().encode()
        return hashlib.sha256(key).hexdigest().encode()

    def require_other_keys(self, keys: Iterable[bytes]) -> None:
        """Refuse keys that masked records would have: they would be masked again.

        Raises:
            UsageProblem: there is one.
        """
        named = set(keys)
        if not named.isdisjoint(map(self.key, named)):
            raise UsageProblem("--mask: one of the keys is the hash of another")


def _filled(value: bytes | None) -> bytes | None:
    return None if value is None else FILLER * len(value)
