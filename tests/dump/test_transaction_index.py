from __future__ import annotations

from pathlib import Path

from builders.index_files import Said, Segment
from kdump.dump import transaction_index
from kdump.formats.transaction_index import AbortedTxn, encode

ABORTED = AbortedTxn(producer_id=7, first_offset=10, last_offset=14, last_stable_offset=12)
LINE = "version: 0 producerId: 7 firstOffset: 10 lastOffset: 14 lastStableOffset: 12\n"


def dump(directory: Path, content: bytes) -> tuple[str, Said]:
    said = Said()
    file = Segment(directory).write(".txnindex", content)
    return "".join(transaction_index.dump(file, said.report)), said


def test_each_aborted_transaction_is_a_line(tmp_path: Path) -> None:
    text, said = dump(tmp_path, encode([ABORTED, ABORTED]))
    assert text == LINE * 2
    assert not said.report.damaged


def test_an_empty_index_prints_nothing(tmp_path: Path) -> None:
    assert dump(tmp_path, b"")[0] == ""


def test_only_the_first_byte_of_the_version_is_printed(tmp_path: Path) -> None:
    assert dump(tmp_path, b"\0\5" + encode([ABORTED])[2:])[0] == LINE


def test_an_entry_of_an_unknown_version_is_skipped_and_reported(tmp_path: Path) -> None:
    unknown = b"\1\0" + encode([ABORTED])[2:]
    text, said = dump(tmp_path, encode([ABORTED]) + unknown + encode([ABORTED]))
    assert text == LINE * 2
    assert len(said.lines) == 1
    assert "byte 34: aborted transaction has an unknown version" in said.lines[0]
    assert said.report.damaged


def test_a_partial_entry_is_ignored_and_reported(tmp_path: Path) -> None:
    text, said = dump(tmp_path, encode([ABORTED]) + b"\0")
    assert text == LINE
    assert "byte 34: index ends in a partial entry" in said.lines[0]


def test_rows_have_every_field(tmp_path: Path) -> None:
    said = Said()
    file = Segment(tmp_path).write(".txnindex", encode([ABORTED]))
    assert list(transaction_index.rows(file, said.report)) == [
        {
            "type": "aborted_transaction",
            "producer_id": 7,
            "first_offset": 10,
            "last_offset": 14,
            "last_stable_offset": 12,
            "version": 0,
        }
    ]
