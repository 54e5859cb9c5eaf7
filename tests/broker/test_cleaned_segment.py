"""The segment that replaces a group, before it has any content."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from builders.log_directories import write_partition
from kdump.broker.cleaner.cleaned_segment import GroupRewriter, GroupToRewrite, RewrittenGroup
from kdump.broker.cleaner.compaction_parts import Amount
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats.names import FileKind
from kdump.storage.local_disk import LocalDisk, local
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept


def rewritten(path: Path) -> RewrittenGroup | Refusal:
    """Rewrite the first segment; nothing in it stays."""
    group = GroupToRewrite(local(path), (0,), (), Amount(), (), IndexSettings(), 0)
    rewriter = GroupRewriter(group)
    assert list(rewriter.pieces()) == []
    return rewriter.outcome


def test_a_group_is_rewritten_without_listing_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_partition(tmp_path / "orders-0", {0: b"".join(batches(2)), 6: b""})

    def entries(self: LocalDisk, path: str) -> list[object]:
        raise AssertionError(path)

    monkeypatch.setattr(LocalDisk, "entries", entries)
    outcome = rewritten(path)
    assert isinstance(outcome, RewrittenGroup)
    assert outcome.indexes == {
        FileKind.OFFSET_INDEX: Kept(),
        FileKind.TIME_INDEX: Kept(),
        FileKind.TRANSACTION_INDEX: Gone(),
    }


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
def test_a_directory_with_the_name_of_a_new_file_is_in_the_way(tmp_path: Path, suffix: str) -> None:
    path = write_partition(tmp_path / "orders-0", {0: b""})
    (path / f"{0:020d}{suffix}.cleaned").mkdir()
    outcome = rewritten(path)
    assert isinstance(outcome, Refusal)
    assert outcome.file == f"{0:020d}{suffix}.cleaned"
