"""How a key may be written where it is not written as it is.

A key of text is escaped in JSON and in URLs, and some write it in UTF-16. JSON has any bytes in
base64.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

_HTML: Final = re.compile(r"[<>&='\u2028\u2029]")
"""What Gson escapes, so that JSON can be in a page."""
_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]*")
"""Nothing of this is escaped."""
_JSON_HEX: Final = re.compile(r"\\u[0-9a-f]{4}")
_URL_HEX: Final = re.compile(r"%[0-9A-F]{2}")


def is_number(key: bytes) -> bool:
    """Whether a key is probably a number of 4 or 8 bytes, which are in many places by chance."""
    if len(key) == _INT32_BYTES:
        return any(byte < 0x20 or byte == 0x7F for byte in key)
    return len(key) == _INT64_BYTES and key[0] in (0x00, 0xFF)


def forms_in_records(key: bytes) -> frozenset[bytes]:
    """The other forms of a key that are searched everywhere; none of a number."""
    if is_number(key):
        return frozenset()
    found = {b64encode(key).rstrip(b"="), urlsafe_b64encode(key).rstrip(b"=")}
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return frozenset(found)
    if "\0" in text:
        return frozenset(found)
    if not _PLAIN.fullmatch(text):
        found.update(each.encode() for each in (*_in_json(text), *_in_urls(text)))
    found |= {text.encode("utf-16-le"), text.encode("utf-16-be")}
    return frozenset(found - {key})


def forms_in_files(key: bytes) -> frozenset[bytes]:
    """Those that are searched in bytes that are no records: lists of keys may have them in hex."""
    if is_number(key):
        return frozenset()
    written = key.hex()
    return forms_in_records(key) | {written.encode(), written.upper().encode()}


def _in_json(text: str) -> Iterator[str]:
    for ascii_only in (False, True):
        plain = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for written in (plain, _HTML.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)):
            for each in (written, written.replace("/", "\\/")):
                yield each
                yield _JSON_HEX.sub(lambda found: "\\u" + found[0][2:].upper(), each)


def _in_urls(text: str) -> Iterator[str]:
    for written in (quote(text), quote(text, safe=""), quote_plus(text), quote(text, safe="/:@")):
        yield written
        yield _URL_HEX.sub(lambda found: found[0].lower(), written)
