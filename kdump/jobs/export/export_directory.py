"""The directory of an export on a disk: its files, its manifest, and what earlier runs left.

While a run writes, its progress is in ``_progress.jsonl``: a header, and a line for each file that
is complete. Earlier files that are not wanted any more are deleted when all new ones are written,
and only those of partitions that could be read. What a reader finds if the machine stops:

1. A file has a temporary name until it is complete and synced; nobody reads it, and the next run
   deletes it.
2. A file has its own name, but no line in the progress: the next run writes it again.
3. All files have lines, but there is no ``_manifest.json`` yet: the next run writes only that.
4. There is a manifest and no progress, but no ``_SUCCESS``: the next run writes that. It is written
   last, and deleted first when files have to be written again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, Self

from kdump.apply.directory_lock import lock_directory
from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.formats.json_document import DocumentError, JsonObject, read_document
from kdump.formats.safe_json import json_line
from kdump.jobs.export.file_names import partition_of
from kdump.processes.worker_pool import close_kept
from kdump.storage.local_disk import local
from kdump.storage.unfinished_file import UnfinishedFile, is_unfinished, sync_directory

MANIFEST: Final = "_manifest.json"
SUCCESS: Final = "_SUCCESS"
PROGRESS: Final = "_progress.jsonl"
FORMAT: Final = "kdump-export"
VERSION: Final = 2

_TEMPORARY_PREFIX: Final = ".kdump-export-"
_OWN_NAMES: Final = frozenset({MANIFEST, SUCCESS, PROGRESS})

Document = dict[str, Any]


class ExportError(KdumpError):
    """The directory of an export cannot be used or written."""


def new_file(directory: Path, file: str) -> UnfinishedFile:
    """Create the temporary file for ``file``, a relative path in ``directory``.

    Raises:
        OSError: it cannot be created.
    """
    path = directory / file
    path.parent.mkdir(parents=True, exist_ok=True)
    # Other programs read an export: its files have the modes of any file.
    return UnfinishedFile.beside(path, _TEMPORARY_PREFIX, mode=0o666)


class ExportDirectory:
    """The directory while an export runs; a context that locks it.

    Attributes:
        name: as typed.
        path: absolute.
        options: of the earlier runs; None if there was none.
        partitions: what they exported, by topic and number, as in the manifest but without files.
        entries: their complete files, by fingerprint of the partition and path of the file.
        is_complete: whether an earlier run wrote everything.
        replaced: how many of their files this run has written again.
        removed: how many it has deleted.
    """

    def __init__(self, name: str) -> None:
        """Take the path of the directory; it is created when the context begins."""
        self.name = name
        self.path = Path(name).absolute()
        self.options: Document | None = None
        self.entries: dict[tuple[str, str], Document] = {}
        self.partitions: dict[tuple[str, int], Document] = {}
        self.is_complete = False
        self.replaced = 0
        self.removed = 0
        self._lock = -1
        self._progress: IO[bytes] | None = None
        self._renamed: set[Path] = set()

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(exist_ok=True)
            self._lock = self._take_lock()
            self._read_earlier()
        except (OSError, ValueError) as failure:
            self._close()
            raise self._error(failure) from failure
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._progress is not None:
            with contextlib.suppress(OSError):
                self._progress.close()
            self._progress = None
        if self._lock >= 0:
            close_kept(self._lock)
            self._lock = -1

    def _take_lock(self) -> int:
        try:
            return lock_directory(self.path)
        except BlockingIOError:
            raise ExportError(f"{self.name}: another kdump exports to this directory") from None

    def _error(self, failure: Exception) -> ExportError:
        return ExportError(f"{self.name}: {reason_of(failure)}")

    # What earlier runs left

    def _read_earlier(self) -> None:
        names = {entry.name for entry in self.path.iterdir()}
        if MANIFEST in names:
            self._read_manifest()
        if PROGRESS in names:
            self._read_progress()
        is_foreign = {
            name for name in names - _OWN_NAMES if not is_unfinished(name, _TEMPORARY_PREFIX)
        }
        if self.options is None and is_foreign:
            raise UsageProblem(
                f"{self.name}: is not empty, and kdump export did not write it:"
                " name a new directory"
            )

    def _read(self, name: str) -> bytes:
        try:
            return local(str(self.path / name)).read()
        except OSError as failure:
            raise ExportError(
                f"{self.name}/{name}: {reason_of(failure)}: name a new directory"
            ) from failure

    def _read_manifest(self) -> None:
        with self._checking(MANIFEST):
            found = read_document(self._read(MANIFEST), FORMAT, VERSION)
            self.options = _read_options(found)
            is_complete = found.text("state") == "complete"
            for partition in found.objects("partitions"):
                self._take_partition(partition)
                for part in map(_read_part, partition.objects("parts")):
                    self.entries[partition.text("fingerprint"), part["part"]] = part
        self.is_complete = is_complete and (self.path / SUCCESS).exists()

    def _read_progress(self) -> None:
        self.is_complete = False
        self.entries.clear()
        self.partitions.clear()
        lines = self._read(PROGRESS).splitlines(keepends=True)
        with self._checking(PROGRESS):
            header = read_document(lines[0] if lines else b"", FORMAT, VERSION)
            self.options = _read_options(header)
            for partition in header.objects("partitions"):
                self._take_partition(partition)
        for line in lines[1:]:
            # The last lines may be incomplete.
            with contextlib.suppress(ValueError, DocumentError):
                found = JsonObject.of(json.loads(line), "")
                part = _read_part(found.object("part"))
                self.entries[found.text("fingerprint"), part["part"]] = part

    def _take_partition(self, partition: JsonObject) -> None:
        key = partition.text("topic"), partition.number("partition")
        self.partitions[key] = _read_partition(partition)

    @contextlib.contextmanager
    def _checking(self, name: str) -> Iterator[None]:
        """Refuse a document that another program or version wrote, or that was edited.

        Raises:
            UsageProblem: it is one.
        """
        try:
            yield
        except DocumentError as error:
            raise UsageProblem(f"{self.name}/{name}: {error}: name a new directory") from None

    def parts_of(self, partition: Document) -> list[Document]:
        """The files of a partition of earlier runs that are as they were written."""
        return [
            part
            for (fingerprint, _), part in self.entries.items()
            if fingerprint == partition["fingerprint"] and self.is_there(part)
        ]

    def is_there(self, part: Document) -> bool:
        """Whether the file of an entry is as it was written."""
        if part["unreadable"] is not None:
            return False
        if part["file"] is None:
            return True
        with contextlib.suppress(OSError):
            return bool((self.path / part["file"]).stat().st_size == part["size_bytes"])
        return False

    def obsolete(self, wanted: Collection[str], partitions: Collection[str]) -> list[str]:
        """The exported files of some partitions that are not wanted.

        Args:
            partitions: what the paths of their files begin with.
        """
        paths = (str(path.relative_to(self.path)) for path in self._files())
        return [path for path in paths if partition_of(path) in partitions and path not in wanted]

    def _files(self) -> Iterator[Path]:
        return (Path(root) / name for root, _, names in os.walk(self.path) for name in names)

    # Writing

    def begin(
        self,
        options: Document,
        partitions: Iterable[Document],
        kept: Mapping[tuple[str, str], Document],
    ) -> None:
        """Begin to write: from now on the directory is incomplete.

        Args:
            options: of this run.
            partitions: of this run, as in the manifest.
            kept: the entries of files that stay.

        Raises:
            ExportError: the disk fails.
        """
        try:
            self._remove(SUCCESS)
            header = {
                "format": FORMAT,
                "version": VERSION,
                "options": options,
                "partitions": list(map(_without_parts, partitions)),
            }
            lines = [json_line(header)]
            lines += [_progress_line(fingerprint, part) for (fingerprint, _), part in kept.items()]
            self._write(PROGRESS, lines)
            self._progress = (self.path / PROGRESS).open("ab", buffering=0)
            self._delete_temporary()
        except OSError as failure:
            raise self._error(failure) from failure

    def add(self, fingerprint: str, part: Document, temporary: str | None) -> None:
        """Give a file its name, and note that it is complete.

        Raises:
            ExportError: the disk fails.
        """
        assert self._progress is not None
        try:
            if temporary is not None:
                path = self.path / part["file"]
                self.replaced += path.exists()
                Path(temporary).rename(path)
                self._renamed |= {path.parent, path.parent.parent}
            # Not synced: the next run looks whether the file is there.
            self._progress.write(_progress_line(fingerprint, part))
        except OSError as failure:
            raise self._error(failure) from failure

    def remove(self, files: Iterable[str]) -> None:
        """Delete exported files, after those that replace them are durable.

        Raises:
            ExportError: the disk fails.
        """
        try:
            self._sync_renamed()
            for file in files:
                self._delete(self.path / file)
                self.removed += 1
        except OSError as failure:
            raise self._error(failure) from failure

    def finish(self, manifest: Document, *, is_complete: bool) -> None:
        """Write the manifest, after all files are durable.

        Raises:
            ExportError: the disk fails.
        """
        try:
            self._sync_renamed()
            # A task of Spark may have run twice, and one of its two files has no name.
            self._delete_temporary()
            self._write(MANIFEST, [json.dumps(manifest, indent=1).encode(), b"\n"])
            self._remove(PROGRESS)
            if is_complete:
                self._write(SUCCESS, [])
        except OSError as failure:
            raise self._error(failure) from failure

    def _sync_renamed(self) -> None:
        for directory in sorted(self._renamed):
            sync_directory(directory)
        self._renamed.clear()

    def drop_temporary(self) -> None:
        """Delete the files that were not finished."""
        with contextlib.suppress(OSError):
            self._delete_temporary()

    def _delete_temporary(self) -> None:
        for path in list(self._files()):
            if is_unfinished(path.name, _TEMPORARY_PREFIX):
                self._delete(path)

    def _delete(self, path: Path) -> None:
        """Delete a file, and the directories around it that are empty then."""
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for parent in path.parents:
                if parent == self.path:
                    break
                parent.rmdir()

    def _remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
        sync_directory(self.path)

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file beside its name, sync and rename it."""
        with new_file(self.path, name) as new:
            new.stream.writelines(pieces)
            new.finish()
            new.rename(self.path / name)
        sync_directory(self.path)


def _read_options(document: JsonObject) -> Document:
    options = document.object("options")
    options.texts("sources")
    return dict(options.fields)


def _read_partition(partition: JsonObject) -> Document:
    """A partition of an earlier run, without its files."""
    partition.text("fingerprint")
    partition.optional(partition.text, "unreadable")
    source = partition.object("source")
    source.text("path")
    for name in ("log_start_offset", "log_end_offset", "last_stable_offset", "open_transactions"):
        source.optional(source.number, name)
    source.optional(source.text, "schemas")
    partition.optional(partition.number, "unstable_records")
    for transaction in partition.objects("transactions"):
        for name in ("producer_id", "producer_epoch", "first_offset", "last_offset"):
            transaction.number(name)
    partition.number("more_problems")
    _check_problems(partition)
    return _without_parts(partition.fields)


def _read_part(part: JsonObject) -> Document:
    """A file of an earlier run."""
    part.text("part")
    for name in ("file", "unreadable"):
        part.optional(part.text, name)
    for name in ("records", "size_bytes", "aborted_records", "open_records", "undecoded_records"):
        part.number(name)
    part.number("more_problems")
    part.optional(part.text, "first_undecoded")
    for name in ("first_offset", "last_offset"):
        part.optional(part.number, name)
    _check_problems(part)
    return dict(part.fields)


def _check_problems(document: JsonObject) -> None:
    for problem in document.objects("problems"):
        problem.has_only(("path", "start", "end", "what", "is_damage"))
        problem.text("path")
        problem.number("start")
        problem.number("end")
        problem.text("what")
        problem.flag("is_damage")


def _without_parts(partition: Mapping[str, Any]) -> Document:
    return {name: value for name, value in partition.items() if name != "parts"}


def _progress_line(fingerprint: str, part: Document) -> bytes:
    return json_line({"fingerprint": fingerprint, "part": part})
