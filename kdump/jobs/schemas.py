"""Read the schemas of a schema registry: from its topic on disks, or from files.

The topic is read as those of coordinators are: of several replicas the one that reaches furthest,
and of each key its latest record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.errors import reason_of
from kdump.formats.names import TopicPartition
from kdump.jobs.groups.coordinator_replicas import ChosenLog, read_coordinators
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import (
    LogDirectory,
    directory_kind,
    log_directories_below,
    read_log_directory,
)
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage
from kdump.payloads.avro_payloads import avro_full_name
from kdump.phases import phase
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.schema_registry import (
    AVRO,
    JSON,
    PROTOBUF,
    SCHEMAS_TOPIC,
    RegistryError,
    RegistryReplay,
    SchemaReference,
    SchemaRegistry,
    StoredSchema,
    stored_schema,
)
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

_IN_PROCESS: Final = EngineOptions(EngineChoice.LOCAL, processes=1)
_TYPES: Final = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}


class SchemasRead(Struct):
    """The schemas that were found, and what could not be read.

    Attributes:
        damage: in the logs of the topic.
        unreadable: files.
        has_source: whether there is the topic, or a file with schemas.
    """

    registry: SchemaRegistry = field(default_factory=SchemaRegistry)
    damage: list[Damage] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    has_source: bool = False


def read_schemas(paths: Sequence[Location]) -> SchemasRead:
    """Read schemas from log directories, directories of the topic's partition, and files.

    Log directories are those of one cluster: the topic's replicas in them are compared. A file is
    JSON: what ``GET /schemas`` of a registry returns, or one such object on each line. The files of
    any other directory are schemas, named by their ids: ``7.avsc``, ``7.json`` or ``7.proto``. They
    may use each other: by full names in Avro, by file names in Protobuf.

    Raises:
        KdumpError: the engine failed.
    """
    found, replay = SchemasRead(), RegistryReplay()
    directories: list[LogDirectory] = []
    with phase("reading the schemas"):
        for path in paths:
            try:
                _read_path(path, directories, replay, found)
            except OSError as failure:
                _add_failure(found, path, failure)
        topics = {str(key.topic) for each in directories for key in _partitions(each)}
        if directories:
            for chosen in read_coordinators(directories, _IN_PROCESS, topics=topics):
                _replay_log(chosen, replay, found)
    found.registry = replay.registry()
    return found


def _add_failure(found: SchemasRead, path: Location, failure: OSError) -> None:
    where = failure.filename or str(path)
    found.unreadable.append(Unreadable(where, reason_of(failure)))


def _partitions(directory: LogDirectory) -> Iterator[TopicPartition]:
    for each in directory.partitions:
        if each.topic_partition is not None:
            yield each.topic_partition


def _read_path(
    path: Location,
    directories: list[LogDirectory],
    replay: RegistryReplay,
    found: SchemasRead,
) -> None:
    if not path.is_directory():
        _put_all(_schemas_of_json(path), replay)
        found.has_source = True
        return
    kind = directory_kind(path)
    if kind.is_partition:
        own = path.as_absolute()
        directories.append(_listed(own.parent, own.name, found))
    elif kind.is_log_directory:
        directories.append(_listed(path, None, found))
    else:
        schemas = list(_schemas_of_files(path))
        _put_all(schemas, replay)
        found.has_source |= bool(schemas)


def _listed(path: Location, name: str | None, found: SchemasRead) -> LogDirectory:
    """List a log directory with the partition ``name``, or those of the registry's topic."""

    def is_wanted(directory_name: str, key: TopicPartition) -> bool:
        return key.topic == SCHEMAS_TOPIC if name is None else directory_name == name

    listed = read_log_directory(path, select=is_wanted)
    loaded: list[Partition] = []
    unreadable = [*listed.unreadable]
    for each in listed.partitions:
        try:
            loaded.append(as_loaded(each))
        except (OSError, UnfinishedSwapError) as failure:
            found.unreadable.append(Unreadable(str(each.path), str(failure)))
            unreadable.append(each.path.name)
    found.has_source |= bool(loaded)
    return replace(listed, partitions=tuple(loaded), unreadable=tuple(unreadable))


def _replay_log(chosen: ChosenLog, replay: RegistryReplay, found: SchemasRead) -> None:
    log = chosen.log
    found.damage += log.damage
    found.unreadable += [*chosen.unreadable, *([log.unreadable] if log.unreadable else [])]
    records = log.records
    assert isinstance(records, LatestRecords)
    latest: list[tuple[int, bytes, bytes | None]] = [
        (record.offset, key, record.value) for key, record in records.values.items()
    ]
    latest += [(offset, key, None) for key, offset in records.tombstones.items()]
    path = log.replica.partition.path
    for offset, key, value in sorted(latest):
        replay.add(key, value, f"{path}: offset {offset}")


def _schemas_of_json(path: Location) -> list[StoredSchema]:
    """The schemas of a file of JSON.

    Raises:
        OSError: it cannot be read, or is not what it should be.
    """
    try:
        text = path.read().decode("utf-8-sig")
        documents = list(_documents(text))
        listed = [each for one in documents for each in (one if isinstance(one, list) else [one])]
        return [_schema_of_object(each) for each in listed]
    except (ValueError, RecursionError) as failure:
        raise OSError(f"not the JSON of a registry's schemas: {failure}") from None
    except RegistryError as failure:
        raise OSError(f"not the JSON of a registry's schemas: {failure}") from None


def _documents(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        document, at = decoder.raw_decode(text, at)
        yield document


def _schema_of_object(found: object) -> StoredSchema:
    if not isinstance(found, dict):
        raise RegistryError("an element is not an object")
    return stored_schema(found)


def _schemas_of_files(path: Location) -> Iterator[StoredSchema]:
    """The schemas of a directory of files.

    Raises:
        OSError: it cannot be listed, or a file cannot be read.
    """
    texts: dict[str, tuple[str, str]] = {}
    for entry in sorted(path.entries(), key=lambda each: each.name):
        stem, dot, suffix = entry.name.rpartition(".")
        kind = _TYPES.get(dot + suffix)
        if kind is not None and stem and entry.kind is EntryKind.FILE:
            texts[entry.name] = kind, (path / entry.name).read().decode("utf-8", "replace")
    names = {name: _reference_name(name, kind, text) for name, (kind, text) in texts.items()}
    for position, (name, (kind, text)) in enumerate(texts.items()):
        stem = name.rpartition(".")[0]
        others = [
            SchemaReference(names[other], other, 1)
            for other, (its_kind, _) in texts.items()
            if other != name and its_kind == kind and kind != JSON
        ]
        # No payload has a negative id: those schemas are only used by others.
        number = int(stem) if stem.isascii() and stem.isdecimal() else -1 - position
        yield StoredSchema(name, 1, number, kind, text, tuple(others))


def _reference_name(name: str, kind: str, text: str) -> str:
    """How other schemas call the schema of a file: by its full name in Avro, else by its file."""
    if kind != AVRO:
        return name
    try:
        return avro_full_name(json.loads(text)) or name
    except (ValueError, RecursionError):
        return name


def _put_all(schemas: Sequence[StoredSchema], replay: RegistryReplay) -> None:
    for schema in schemas:
        try:
            replay.put(schema)
        except RegistryError as problem:
            replay.problems.append(str(problem))


def log_directories_of(paths: Iterable[Location]) -> Iterator[Location]:
    """The log directories that the data at some paths is in, each once."""
    seen = set[str]()
    for each in paths:
        try:
            around = _around(each)
        except OSError:
            # The data cannot be listed either, which is reported then.
            continue
        for path in around:
            name = str(path.as_absolute())
            if name not in seen:
                seen.add(name)
                yield path


def _around(path: Location) -> Sequence[Location]:
    """The log directories of a segment, a partition, a log directory or one above.

    Raises:
        OSError: a directory cannot be listed.
    """
    named = path.as_absolute()
    if path.kind() is EntryKind.FILE:
        return _if_log_directory(named.parent.parent)
    if not path.is_directory():
        return ()
    kind = directory_kind(path)
    if kind.is_log_directory:
        return (path,)
    return _if_log_directory(named.parent) if kind.is_partition else log_directories_below(path)


def _if_log_directory(path: Location) -> Sequence[Location]:
    return (path,) if directory_kind(path).is_log_directory else ()
