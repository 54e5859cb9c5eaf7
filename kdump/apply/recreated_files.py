"""Recreate the before-images that a complete run does not keep as files.

A complete run keeps hard links only to files that cannot be recreated. Before it is undone, every
other before-image becomes a file again, under a name of the run: the state of the log directory is
then the same as while the run was being applied, and the undo records can be executed.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.files import FileRange, Files
from kdump.apply.fingerprints import kept_file_fingerprint
from kdump.apply.journal import BeforeImage, Fingerprint, Journal
from kdump.apply.journal_file import run_files_in
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.apply.journal_replay import Replay
from kdump.apply.pinned_directory import identity_of, is_same, status_at
from kdump.phases import during


@during("restoring files")
def recreate_files(log_dir: Path, journal: Journal, files: Files) -> Journal:
    """Give every before-image that lost its name a name of the run; returns the new journal.

    A file that was only renamed gets a hard link; a rewritten one is put together again.

    Raises:
        OSError: a file cannot be created.
    """
    recreation = _Recreation(log_dir, journal, files)
    links = sum(each.link is not None for each in journal.before_images.values())
    used = max(
        (int(suffix.removeprefix("-old-")) for suffix in _old_suffixes(log_dir, journal)),
        default=links,
    )
    before_images = {}
    undo_files = dict(journal.undo_files)
    undo_records = journal.undo_records
    for path, before in journal.before_images.items():
        if before.link is None and (
            before.derived is not None or _is_shared(log_dir, path, before)
        ):
            used += 1
            name = journal.own_name(f"-old-{used}")
            is_whole = recreation.recreate(name, path, before)
            if is_whole and before.cut is not None:
                undo_records = tuple(_put_instead(record, path) for record in undo_records)
            before = replace(before, link=name)
            undo_files[name] = kept_file_fingerprint(log_dir / name)
        before_images[path] = before
    files.sync([log_dir])
    fingerprints = {
        path: Fingerprint(each.size_bytes, each.modified_ns)
        for path, each in journal.fingerprints.items()
    }
    return replace(
        journal,
        before_images=before_images,
        undo_files=undo_files,
        undo_records=undo_records,
        fingerprints=fingerprints,
        after={path: fingerprints[path] for path in journal.after},
    )


def _put_instead(record: JournalRecord, path: str) -> JournalRecord:
    """Replace the FILL record of a file that was recreated as a whole by a PUT record."""
    is_of_path = record.kind is RecordKind.FILL and record.source == path
    return JournalRecord(RecordKind.PUT, path, path) if is_of_path else record


def _old_suffixes(log_dir: Path, journal: Journal) -> list[str]:
    found = run_files_in(log_dir).get(journal.number, {})
    return [suffix for suffix in found if suffix.startswith("-old-")]


def _is_shared(log_dir: Path, path: str, before: BeforeImage) -> bool:
    """Whether a truncated file has got hard links since: it must not be changed in place."""
    return before.cut is not None and status_at(log_dir / path).st_nlink > 1


class _Recreation(Struct, frozen=True):
    """Recreates the before-images of one journal."""

    log_dir: Path
    journal: Journal
    files: Files

    def recreate(self, name: str, path: str, before: BeforeImage) -> bool:
        """Recreate the before-image of ``path`` as ``name``.

        Returns:
            Whether it is a separate, complete file; not a link to one that is still truncated.
        """
        kept = self.log_dir / name
        derived = before.derived
        replay = Replay(self.log_dir, self.journal, self.files)
        if derived is not None and derived.is_rename:
            renamed = self.log_dir / derived.pieces[0].path
            if before.cut is None or status_at(renamed).st_nlink == 1:
                self.files.link(renamed, kept)
                if before.cut is None or is_same(renamed, kept):
                    return False
                replay.restore(kept, before, before.cut.kept_ranges)
                self.files.sync([kept])
                return True
        if derived is None or derived.is_rename:
            assert before.cut is not None, f"{path} has no link and is not derived"
            source = path if derived is None else derived.pieces[0].path
            self.files.create(kept, [self._range(source, 0, before.cut.position)])
            replay.restore(kept, before, before.cut.kept_ranges)
        else:
            source = derived.pieces[0].path
            self.files.create(kept, [])
            self.files.truncate(kept, before.size_bytes)
            for piece in derived.pieces:
                content = [self._range(piece.path, piece.start, piece.end)]
                self.files.write_at(kept, piece.position, content)
            replay.restore(kept, before, derived.kept_ranges)
        self.files.copy_attributes(kept, self.log_dir / source)
        self.files.sync([kept])
        return True

    def _range(self, path: str, start: int, end: int) -> FileRange:
        """A range of the file itself, never of one that a symbolic link leads to."""
        source = self.log_dir / path
        return FileRange(source, start, end, identity_of(status_at(source)))
