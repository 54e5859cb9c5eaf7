"""The options that name the records to erase: by key, by offset, or by a field of them."""

from __future__ import annotations

import base64
import binascii
import codecs
import enum
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from kdump.cli.options.option_group import option_group
from kdump.cli.options.payload_options import schemas_option
from kdump.errors import ExitStatus, KdumpError, UsageProblem, reason_of
from kdump.storage.local_disk import local
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.payloads.named_fields import NamedField
    from kdump.repair.erase.named_records import NamedRecords
    from kdump.state.schema_registry import SchemaRegistry


class KeyFormat(enum.Enum):
    """How keys are written; the value is the word for ``--key-format``."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"

    def parse(self, text: bytes) -> bytes:
        """The bytes of a key.

        Raises:
            ValueError: the text is not in this format.
        """
        match self:
            case KeyFormat.TEXT:
                return text
            case KeyFormat.HEX:
                return binascii.unhexlify(text)
            case KeyFormat.BASE64:
                return base64.b64decode(text, validate=True)


class NamedArguments(Struct, frozen=True):
    """These options as given on the command line.

    Attributes:
        key_format: how they are written, also in the file, and the prefixes.
        keys_file: a file with a key on each line.
        prefixes: what keys begin with.
        offsets_file: a file with a partition and an offset on each line.
        fields: fields of decoded keys and values, each with its text.
        schemas: where schemas are; empty to look for the registry's topic.
    """

    keys: tuple[str, ...]
    key_format: KeyFormat
    keys_file: Path | None
    prefixes: tuple[str, ...]
    offsets_file: Path | None
    fields: tuple[NamedField, ...] = ()
    schemas: tuple[Location, ...] = ()

    @property
    def is_given(self) -> bool:
        """Whether any record is named."""
        files = (self.keys_file, self.offsets_file)
        return bool(
            self.keys or self.prefixes or self.fields or any(each is not None for each in files)
        )

    def read(self, registry: SchemaRegistry | None = None) -> NamedRecords:
        """Read the files, and return what is named.

        Args:
            registry: the schemas for fields; None if they are not known yet.

        Raises:
            UsageProblem: a key or an offset cannot be understood.
            OSError: a file cannot be read.
        """
        from kdump.repair.erase.named_records import NamedRecords

        keys = {self._key("--key", _bytes_of(each)) for each in self.keys}
        if self.keys_file is not None:
            for number, line in _lines(self.keys_file):
                keys.add(self._key(f"{self.keys_file}, line {number}", line))
        prefixes = tuple(self._key("--key-prefix", _bytes_of(each)) for each in self.prefixes)
        if b"" in prefixes:
            raise UsageProblem("--key-prefix: every key begins with the empty prefix")
        offsets = {} if self.offsets_file is None else _read_offsets(self.offsets_file)
        named = NamedRecords(frozenset(keys), prefixes, offsets, self.fields)
        return named if registry is None else replace(named, registry=registry)

    def registry(self, paths: Iterable[Location], diagnostics: Diagnostics) -> SchemaRegistry:
        """Read the schemas for fields.

        Args:
            paths: of the data; without ``--schemas`` the registry's topic is looked for in the log
                directories that it is in.

        Raises:
            KdumpError: some cannot be read.
        """
        from kdump.cli.options.schemas import read_registry

        found = read_registry(self.schemas, paths, diagnostics)
        if diagnostics.status & ExitStatus.OPERATIONAL_ERROR:
            raise KdumpError("schemas cannot be read; nothing has been changed")
        return found

    def _key(self, where: str, text: bytes) -> bytes:
        try:
            return self.key_format.parse(text)
        except ValueError as error:
            # The key itself is not repeated: messages end in logs and tickets.
            raise UsageProblem(
                f"{where}: a key is not in --key-format {self.key_format.value}"
            ) from (error)


def _field(expression: str) -> NamedField:
    from kdump.payloads.named_fields import NamedField

    try:
        return NamedField.parse(expression)
    except ValueError as error:
        # What was typed is not repeated: messages end in logs and tickets.
        raise UsageProblem(f"--where: {error}") from error


def _bytes_of(argument: str) -> bytes:
    """The bytes that were typed: Python reads those that are not UTF-8 as surrogates."""
    return argument.encode("utf-8", "surrogateescape")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, and their numbers.

    What Windows adds is no part of them: a byte order mark in front, and carriage returns.

    Raises:
        UsageProblem: there is none, or the file cannot be read.
    """
    try:
        lines = local(str(path)).read().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as failure:
        raise UsageProblem(f"{path}: cannot be read: {reason_of(failure)}") from failure
    found = [(number, line.removesuffix(b"\r")) for number, line in enumerate(lines, 1)]
    found = [(number, line) for number, line in found if line]
    if not found:
        raise UsageProblem(f"{path}: is empty")
    return iter(found)


def _read_offsets(path: Path) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for number, line in _lines(path):
        words = line.decode("utf-8", "surrogateescape").split()
        if len(words) != 2 or not words[1].isascii() or not words[1].isdigit():
            raise UsageProblem(
                f"{path}, line {number}: expected TOPIC-PARTITION OFFSET, as in orders-3 4711"
            )
        found.setdefault(words[0], set()).add(int(words[1]))
    if any(offset >= 2**63 for each in found.values() for offset in each):
        raise UsageProblem(f"{path}: has an offset that no record can have")
    return {name: tuple(sorted(offsets)) for name, offsets in found.items()}


def _named_arguments(
    keys: tuple[str, ...],
    key_format: KeyFormat,
    keys_file: Path | None,
    prefixes: tuple[str, ...],
    offsets_file: Path | None,
    expressions: tuple[str, ...],
    schemas: tuple[Location, ...],
) -> NamedArguments:
    fields = tuple(dict.fromkeys(map(_field, expressions)))
    return NamedArguments(keys, key_format, keys_file, prefixes, offsets_file, fields, schemas)


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
named_records_options: Final = option_group(
    "named",
    _named_arguments,
    click.option(
        "--key",
        "keys",
        metavar="KEY",
        multiple=True,
        help="Erase records with exactly this key; may be repeated.",
    ),
    click.option(
        "--key-format",
        type=click.Choice(KeyFormat, case_sensitive=False),
        default=KeyFormat.TEXT,
        help="How keys and prefixes are written: text (default), hex or base64.",
    ),
    click.option(
        "--keys-file",
        type=_FILE,
        help="Erase records with a key in FILE, which has one on each line.",
    ),
    click.option(
        "--key-prefix",
        "prefixes",
        metavar="PREFIX",
        multiple=True,
        help="Erase records whose key begins with PREFIX; may be repeated.",
    ),
    click.option(
        "--offsets",
        "offsets_file",
        type=_FILE,
        help="Erase the records at the offsets in FILE: TOPIC-PARTITION OFFSET on each line.",
    ),
    click.option(
        "--where",
        "expressions",
        metavar="FIELD=TEXT",
        multiple=True,
        help="Erase records whose decoded key or value has this field, as in"
        " 'value.customer.id = alice-4711'; may be repeated.",
    ),
    schemas_option,
)
"""Adds the options, as the argument ``named``: :class:`NamedArguments`."""
