"""Protobuf messages as JSON, by Protobuf's own runtime.

The JSON is what ``JsonFormat`` prints with default values, as Confluent's console consumer does. A
schema is the text of a ``.proto`` file, or a ``FileDescriptorProto`` in base64, which the Python
client registers. Its imports are what it references, the types that come with Protobuf, and those
of Confluent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from kdump.formats.confluent_wire import WirePayload, split_message
from kdump.formats.errors import FormatError
from kdump.payloads.json_text import as_json
from kdump.payloads.payload_errors import PayloadError, SchemaProblem, describe_foreign
from kdump.payloads.protobuf_imports import known_files
from kdump.processes.proto_compiler import CompilerError, compile_proto
from kdump.state.schema_registry import PROTOBUF, StoredSchema, UsedSchemas

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

NOT_INSTALLED: Final = "Protobuf needs the extra 'protobuf': pip install 'kafka-kdump[protobuf]'"

_ROOT: Final = "kdump_root.proto"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_MOST_NAME: Final = 200
_ANY: Final = "google.protobuf.Any"


class ProtobufDecoder(Struct, frozen=True):
    """Decodes the payloads of one schema.

    Attributes:
        counts_map_entries: whether indexes count the types that stand for the entries of maps.
        pool: the schema, and what it imports.
        classes: by the indexes of a message type, its class.
    """

    file: FileDescriptorProto
    counts_map_entries: bool
    pool: DescriptorPool
    classes: dict[tuple[int, ...], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StoredSchema, used: UsedSchemas) -> ProtobufDecoder:
        """Prepare to decode payloads of a schema.

        Args:
            used: what it references, and what that references, with the names in references.

        Raises:
            SchemaProblem: it cannot be used.
        """
        try:
            from google.protobuf.descriptor_pool import DescriptorPool

            files = _Files({**dict(used), _ROOT: schema})
            pool = DescriptorPool()
            for each in (*files.known.values(), *files.with_imports(_ROOT)):
                pool.Add(each)
        except CompilerError as failure:
            raise SchemaProblem(f"its schema is malformed: {failure}") from None
        except ImportError:
            raise SchemaProblem(NOT_INSTALLED) from None
        except RecursionError:
            raise SchemaProblem("its schema is nested too deeply") from None
        except SchemaProblem:
            raise
        except Exception as failure:  # noqa: BLE001 - hostile input, and a library's own errors
            raise SchemaProblem(f"its schema is malformed: {describe_foreign(failure)}") from None
        return cls(files.descriptors[_ROOT], _ROOT not in files.texts, pool)

    def text(self, payload: WirePayload) -> tuple[str, bool]:
        """The message as JSON, and whether the schema knows all its fields.

        Raises:
            PayloadError: the payload does not fit the schema.
        """
        from google.protobuf import json_format

        try:
            indexes, data = split_message(payload)
        except FormatError as problem:
            raise PayloadError(str(problem)) from None
        message = self._class_of(indexes)()
        try:
            message.ParseFromString(data)
            text = as_json(
                json_format.MessageToDict(
                    message, always_print_fields_with_no_presence=True, descriptor_pool=self.pool
                )
            )
            return text, self._is_known(message, has_any='"@type":' in text)
        except PayloadError:
            raise
        except RecursionError:
            raise PayloadError("it is nested too deeply") from None
        except Exception as failure:  # noqa: BLE001 - hostile input, and a library's own errors
            raise PayloadError(f"it does not fit its schema: {describe_foreign(failure)}") from None

    def _is_known(self, message: Any, *, has_any: bool) -> bool:
        """Whether the schema knows all fields of a message, also of those in an ``Any``."""
        from google.protobuf.message_factory import GetMessageClass

        size_bytes = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size_bytes:
            return False
        if not has_any:
            return True
        if message.DESCRIPTOR.full_name == _ANY and message.type_url:
            kind = self.pool.FindMessageTypeByName(message.TypeName())
            held = [GetMessageClass(kind).FromString(message.value)]
        else:
            held = list(_messages_in(message))
        return all(self._is_known(each, has_any=True) for each in held)

    def _class_of(self, indexes: tuple[int, ...]) -> Any:
        found = self.classes.get(indexes)
        if found is None:
            from google.protobuf.message_factory import GetMessageClass

            name = self._name_of(indexes)
            found = GetMessageClass(self.pool.FindMessageTypeByName(name))
            self.classes[indexes] = found
        return found

    def _name_of(self, indexes: tuple[int, ...]) -> str:
        """The full name of a message type.

        The Java client counts the types of a ``.proto`` text, where a map is a field, and the
        Python client those of its descriptor, where its entries are a type of their own.
        """
        types, names = list(self.file.message_type), [self.file.package]
        for index in indexes:
            if not self.counts_map_entries:
                types = [each for each in types if not each.options.map_entry]
            if index >= len(types):
                raise PayloadError(f"its schema has no message with the indexes {list(indexes)}")
            names.append(types[index].name)
            types = list(types[index].nested_type)
        return ".".join(name for name in names if name)


class _Files:
    """The files of a schema, and those that it imports.

    Attributes:
        known: what can be imported without a reference, by path; each after what it imports.
        texts: files that are text, by path.
        descriptors: files as descriptors, by path; also of texts, once they are compiled.
    """

    def __init__(self, schemas: Mapping[str, StoredSchema]) -> None:
        self.known = {each.name: each for each in known_files()}
        self.texts: dict[str, str] = {}
        self.descriptors: dict[str, FileDescriptorProto] = {}
        for path, schema in schemas.items():
            if path in self.known:
                continue
            if not _is_import_path(path):
                raise SchemaProblem(f"it imports {path[:_MOST_NAME]!r}, which is no valid path")
            if schema.schema_type != PROTOBUF:
                raise SchemaProblem(f"it imports {path}, which is not Protobuf")
            decoded = _from_base64(schema.text, path)
            if decoded is None:
                self.texts[path] = schema.text
            else:
                self.descriptors[path] = decoded

    def with_imports(self, root: str) -> list[FileDescriptorProto]:
        """A file and what it imports, each after what it imports itself.

        Raises:
            SchemaProblem: an import is missing, or they form a circle.
            CompilerError: a text cannot be compiled.
        """
        found: dict[str, FileDescriptorProto] = {}
        self._add(root, found, ())
        return list(found.values())

    def _add(
        self, path: str, found: dict[str, FileDescriptorProto], parents: tuple[str, ...]
    ) -> None:
        if path in found or path in self.known:
            return
        if path in parents:
            raise SchemaProblem(f"{path} imports itself")
        if path in self.texts and path not in self.descriptors:
            for each in self._compiled(path):
                if each.name not in self.known:
                    self.descriptors.setdefault(each.name, each)
        descriptor = self.descriptors.get(path)
        if descriptor is None:
            raise SchemaProblem(f"it imports {path[:_MOST_NAME]}, which it does not reference")
        for imported in descriptor.dependency:
            self._add(imported, found, (*parents, path))
        found[path] = descriptor

    def _compiled(self, path: str) -> Iterable[FileDescriptorProto]:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        importable = [*self.known.values(), *self.descriptors.values()]
        known = FileDescriptorSet(file=importable).SerializeToString()
        compiled = compile_proto(self.texts, path, known)
        return FileDescriptorSet.FromString(compiled).file


def _is_import_path(path: str) -> bool:
    """Whether a path stays in the directory of the compiler's input."""
    return (
        len(path) <= _MOST_NAME
        and "\\" not in path
        and path.isprintable()
        and not {"", ".", ".."} & set(path.split("/"))
    )


def _from_base64(text: str, path: str) -> FileDescriptorProto | None:
    """The descriptor that a text is in base64; None if it is the text of a ``.proto`` file."""
    if not _BASE64.fullmatch(text):
        return None
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, ValueError, TypeError) as failure:
        raise SchemaProblem(f"its schema is malformed: {describe_foreign(failure)}") from None
    except Exception as failure:  # noqa: BLE001 - DecodeError of the runtime
        raise SchemaProblem(f"its schema is malformed: {describe_foreign(failure)}") from None
    found.name = path
    return found


def _messages_in(message: Any) -> Iterator[Any]:
    """The messages in the fields of a message."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            if descriptor.message_type.fields_by_name["value"].message_type is not None:
                yield from value.values()
        elif descriptor.is_repeated:
            yield from value
        else:
            yield value
