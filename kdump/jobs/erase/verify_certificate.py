"""Verify a certificate: search log directories for keys that it has only as hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.jobs.erase.certificate import Certificate
from kdump.jobs.erase.remains import (
    Remains,
    SearchedFile,
    SearchSplit,
    files_to_search,
    possible_places,
    remains_of,
    search_files,
    search_with,
    undecoded_records,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.repair.erase.erased_offsets import ErasedRanges
from kdump.repair.erase.key_search import FoundKeys, KeySearch, fields_of_topics
from kdump.repair.erase.named_records import NamedRecords
from kdump.repair.erase.searched_content import (
    SearchedContent,
    UndecodedBytes,
    batches_to_doubt,
    decoded_messages,
    searched,
)
from kdump.scan.arrow import gather_bytes
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet


class HashedKeysJob(Struct, frozen=True):
    """Finds records whose keys a certificate has."""

    certificate: Certificate
    largest_record_bytes: int

    def run(self, split: SearchSplit, /) -> FoundKeys | Unreadable:
        try:
            return self._found(split)
        except OSError as failure:
            return Unreadable.of(failure, split.path)

    def _found(self, split: SearchSplit) -> FoundKeys:
        content = SearchedContent.of(split.file.content_names)
        erased = self.certificate.erased.of_partition(split.file.partition, split.file.topic_id)
        with split.path.open_file() as source:
            total = FoundKeys(source.size_bytes)
            for step in searched(source, content, self.largest_record_bytes):
                match step:
                    case RecordColumns():
                        total += self._in_columns(step, erased)
                    case MessageSet():
                        total += self._in_messages(step, erased)
                    case UndecodedBytes():
                        total += FoundKeys(unreadable_batches=int(step.may_hide))
        return total

    def _in_messages(self, found: MessageSet, erased: ErasedRanges) -> FoundKeys:
        messages, may_hide = decoded_messages(found, self.largest_record_bytes)
        offsets = [
            offset
            for offset, key, _ in messages
            if offset in erased or (key is not None and self.certificate.has(key))
        ]
        return FoundKeys(0, len(offsets), 0, 0, int(may_hide), tuple(offsets))

    def _in_columns(self, columns: RecordColumns, erased: ErasedRanges) -> FoundKeys:
        is_left = erased.records(columns)
        rows = np.flatnonzero((columns.key_size >= 0) & ~is_control(columns.batches)[columns.batch])
        if len(rows):
            keys = gather_bytes(
                columns.data,
                columns.key_start[rows],
                columns.key_size[rows],
                np.ones(len(rows), np.bool_),
            )
            found = [each for each in pc.unique(keys).to_pylist() if self.certificate.has(each)]
            is_found = pc.is_in(keys, value_set=pa.array(found, pa.large_binary()))
            is_left[rows[is_found.to_numpy(zero_copy_only=False)]] = True
        offsets = tuple(columns.offset[is_left].tolist())
        return FoundKeys(0, len(offsets), 0, 0, len(batches_to_doubt(columns)), offsets)


class SearchedAgain(Struct, frozen=True):
    """What was found.

    Attributes:
        remains: the files in which something was found.
        files: how many were searched.
        undecoded_records: in how many records no field could be looked for.
    """

    remains: Sequence[Remains]
    files: int
    undecoded_records: int

    @property
    def possible_places(self) -> int:
        """How often a key may be in other keys and values."""
        return possible_places(self.remains)


def search_again(
    directories: Iterable[LogDirectory],
    certificate: Certificate,
    named: NamedRecords,
    largest_record_bytes: int,
    options: EngineOptions = DEFAULT_OPTIONS,
    remote_files: Sequence[SearchedFile] = (),
) -> SearchedAgain:
    """Search for the keys of a certificate, and for the keys and fields that are given as well.

    Raises:
        KdumpError: something cannot be searched.
        OSError: a directory cannot be listed.
    """
    files = [file for directory in directories for file in files_to_search(directory.path)]
    files += remote_files
    job = HashedKeysJob(certificate, largest_record_bytes)
    found = dict(search_with(job, files, options, "searching for the keys of the certificate"))
    undecoded = 0
    fields = fields_of_topics(
        (each, topic) for each in named.fields for topic in certificate.topics_of(each)
    )
    if named.keys or named.prefixes or fields:
        search = KeySearch(named, largest_record_bytes, fields)
        more_found = search_files(files, search, options)
        undecoded = undecoded_records(each for _, each in more_found)
        for file, more in more_found:
            own = found[file]
            if not isinstance(more, FoundKeys) or (isinstance(own, FoundKeys) and own.is_clean):
                found[file] = more
    return SearchedAgain(remains_of(found.items()), len(files), undecoded)
