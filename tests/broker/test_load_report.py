"""Losses are counted in valid batches, past any garbage between them."""

from __future__ import annotations

from pathlib import Path

from builders.batches import batches
from builders.message_sets import message, wrapped_values
from builders.recovery import joined
from kdump.broker.loader.load_report import Loss, measure_loss
from kdump.storage.local_disk import local
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import VirtualDirectory


def loss_of(path: Path, content: bytes) -> Loss:
    (path / "log").write_bytes(content)
    return measure_loss(VirtualDirectory(local(path)), CopiedFrom("log", 0, len(content)))


def test_valid_batches_are_counted_with_their_offsets_and_records(tmp_path: Path) -> None:
    content = joined(batches(3, base_offset=5))

    assert loss_of(tmp_path, content) == Loss(len(content), 3, 9, 5, 13, 0)


def test_valid_batches_after_garbage_are_counted(tmp_path: Path) -> None:
    loss = loss_of(tmp_path, joined(batches(1), b"\xff" * 90, batches(2, base_offset=3)))

    assert (loss.batches, loss.records, loss.damaged_bytes) == (3, 9, 90)


def test_bytes_without_a_valid_batch_have_no_offsets(tmp_path: Path) -> None:
    assert loss_of(tmp_path, bytes(50)) == Loss(50, 0, 0, None, None, 50)


def test_the_number_of_records_in_a_wrapper_is_unknown(tmp_path: Path) -> None:
    assert loss_of(tmp_path, wrapped_values([b"a", b"b"])).records is None


def test_an_uncompressed_message_of_magic_0_or_1_counts_as_a_record(tmp_path: Path) -> None:
    assert loss_of(tmp_path, message(0) + message(1)).records == 2
