"""Text for a record's key and value: Kafka's decoders, and the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from kdump.errors import UsageProblem
from kdump.formats.errors import FormatError
from kdump.formats.java.java_text import java_utf8
from kdump.formats.record_batch import RecordHeader
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local

if TYPE_CHECKING:
    from kdump.formats.internal_topics import ParsedRecord

Decoder = Callable[[bytes], object]
Payload: TypeAlias = bytes | None
"""A key or a value."""
Headers: TypeAlias = Sequence[RecordHeader]
LineTexts: TypeAlias = tuple[str | None, str | None]
"""Of the key and the value of a record; None where there is nothing to print."""


class Contents(Protocol):
    """Text for the key and the value of one record."""

    def text(self, key: Payload, value: Payload, offset: int, headers: Headers = ()) -> LineTexts:
        """Raises :class:`FormatError` where the official tool ends."""
        ...


class Utf8Contents(msgspec.Struct, frozen=True):
    """Keys and values as UTF-8, decoded as in Java: ``StringDecoder`` for both."""

    def text(self, key: Payload, value: Payload, offset: int, headers: Headers = ()) -> LineTexts:
        return (
            None if key is None else java_utf8(key),
            None if value is None else java_utf8(value),
        )


class DecodedContents(msgspec.Struct, frozen=True):
    """Keys and values, each with its own decoder."""

    key_decoder: Decoder
    value_decoder: Decoder

    def text(self, key: Payload, value: Payload, offset: int, headers: Headers = ()) -> LineTexts:
        return _decoded(self.key_decoder, key), _decoded(self.value_decoder, value)


def _decoded(decoder: Decoder, data: bytes | None) -> str | None:
    return None if data is None else str(decoder(data))


class EscapedContents(msgspec.Struct, frozen=True):
    """Other contents, with control characters escaped by ``escape``."""

    contents: Contents
    escape: Callable[[str], str]

    def text(self, key: Payload, value: Payload, offset: int, headers: Headers = ()) -> LineTexts:
        key_text, value_text = self.contents.text(key, value, offset, headers)
        return (
            None if key_text is None else self.escape(key_text),
            None if value_text is None else self.escape(value_text),
        )


class TopicContents(msgspec.Struct, frozen=True):
    """The records of one of Kafka's internal topics."""

    parse: Callable[[bytes | None, bytes | None, int], ParsedRecord]

    def text(self, key: Payload, value: Payload, offset: int, headers: Headers = ()) -> LineTexts:
        parsed = self.parse(key, value, offset)
        return parsed.key_text, parsed.payload_text


class FieldContents(Contents, ABC):
    """Contents that have fields of their own in rows."""

    @abstractmethod
    def fields(self, key: Payload, value: Payload, headers: Headers) -> Mapping[str, Any]:
        """The fields of a record, besides those that it always has."""


def topic_contents(name: str) -> TopicContents:
    """Give the contents of the internal topic that the official tool calls ``name``."""
    from kdump.formats import internal_topics

    return TopicContents(internal_topics.DECODERS[name])


def _integer(layout: struct.Struct, data: bytes) -> int:
    if len(data) < layout.size:
        raise FormatError("value is too short", expected=f"{layout.size} bytes", found=len(data))
    (value,) = layout.unpack_from(data)
    return int(value)


def _int32(data: bytes) -> int:
    return _integer(struct.Struct(">i"), data)


def _int64(data: bytes) -> int:
    return _integer(struct.Struct(">q"), data)


STRING_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"
DECODERS: Final[dict[str, Decoder]] = {
    STRING_DECODER: java_utf8,
    "org.apache.kafka.tools.api.IntegerDecoder": _int32,
    "org.apache.kafka.tools.api.LongDecoder": _int64,
    # Kafka's own prints the address of a Java array, which is of no use.
    "org.apache.kafka.tools.api.DefaultDecoder": bytes.hex,
}
"""Kafka's own decoder classes."""


def find_decoder(name: str) -> Decoder:
    """Find the decoder called ``name``: one of Kafka's classes, or a Python function.

    The function is named as ``module:function``, where Python can import the module (not from the
    current directory), or as ``path/to/file.py:function``. It takes the bytes of a key or a value,
    and what it returns is printed.

    Raises:
        UsageProblem: there is no such decoder, or it cannot be loaded.
    """
    if name in DECODERS:
        return DECODERS[name]
    module_name, separator, function_name = name.rpartition(":")
    if not separator:
        raise UsageProblem(
            f"no decoder {name}; choose one of {', '.join(DECODERS)},"
            " or a Python function as MODULE:FUNCTION or FILE.py:FUNCTION"
        )
    try:
        function = getattr(_load(module_name), function_name)
    except (Exception, SystemExit) as failure:
        raise UsageProblem(f"decoder {name} cannot be loaded: {_explain(failure)}") from failure
    if not callable(function):
        raise UsageProblem(f"decoder {name} is not a function")

    def decode(data: bytes) -> str:
        try:
            text = str(function(data))
            text.encode()
        except UnicodeEncodeError as failure:
            character = failure.object[failure.start]
            raise FormatError(
                f"decoder {name} returned text with the lone surrogate {character!a}"
            ) from failure
        except (Exception, SystemExit) as failure:
            raise FormatError(f"decoder {name} failed: {_explain(failure)}") from failure
        return text

    return decode


def _load(name: str) -> ModuleType:
    """Import a module by its name, or by the path of its file, which ends in ``.py``."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    location = local(name)
    if location.kind() is not EntryKind.FILE:
        raise FileNotFoundError(f"there is no file {name}")
    spec = importlib.util.spec_from_file_location(
        f"_kdump_decoder_{location.name.removesuffix('.py')}", location.as_absolute().local_path
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module that defines them.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _explain(failure: BaseException) -> str:
    """Format an exception of foreign code on one printable line."""
    try:
        said = str(failure)
    except Exception:  # noqa: BLE001 - whatever it is, there is nothing to show
        said = ""
    line = " ".join(said.split()).encode(errors="backslashreplace").decode()
    if not line or not isinstance(failure, Exception):
        return f"{type(failure).__name__} {line}".strip()
    if isinstance(failure, ImportError | AttributeError | OSError | FormatError):
        return line
    return f"{type(failure).__name__}: {line}"


def find_contents(key_decoder: str, value_decoder: str) -> Contents:
    """Give contents with two decoders by name (:func:`find_decoder`)."""
    if key_decoder == value_decoder == STRING_DECODER:
        return Utf8Contents()
    return DecodedContents(find_decoder(key_decoder), find_decoder(value_decoder))
