"""Nothing is left in the blocks of a file system that writes in place, used or free.

Runs are killed before the first and the last change of each kind (``kinds_of_changes``).
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batch, record
from builders.freeing import run
from builders.killed_process import KillableKdump, kinds_of_changes
from builders.mounts import mounted
from builders.samples import at_some_or_each_kind, moments_of_kinds
from builders.verified import LogModel
from kdump.formats.compression import Codec

pytestmark = pytest.mark.slow

KEY: Final = b"alice-4711"
LISTED: Final = KEY.hex().encode()
"""The key in the list of what was erased, which stays until the erasure is finished."""
IMAGE_BYTES: Final = 24 << 20
MKFS: Final = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin")


@dataclass(slots=True)
class Ext4:
    """An ext4 file system in a file, which begins as a copy of ``original``.

    Attributes:
        original: has the log directory.
        written: pieces of the batches in it that are erased.
        at: where it is mounted.
    """

    original: Path
    written: list[bytes]
    image: Path
    at: Path
    stack: ExitStack

    @property
    def logs(self) -> Path:
        return self.at / "logs"

    def again(self) -> None:
        """Make a new file system: what was deleted in the old one would be found for ever."""
        self.stack.close()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        assert MKFS is not None
        subprocess.run([MKFS, "-q", "-F", "-d", self.original, self.image], check=True)
        self._mount()

    def left(self) -> set[bytes]:
        """Search all blocks, used and free, for the key and for what was written.

        It is not mounted then, so that every block has its last content.
        """
        self.stack.close()
        blocks = self.image.read_bytes()
        self._mount()
        return {each for each in (KEY, LISTED, *self.written) if each in blocks}

    def _mount(self) -> None:
        self.stack.enter_context(mounted("-o", "loop", str(self.image), at=self.at))


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Ext4]:
    """Return a file system with a log directory, in which each codec has a record of the key."""
    if MKFS is None:
        pytest.skip("no mkfs.ext4")
    rng = random.Random(4711)
    batches = []
    for codec in Codec:
        rows = [record(0, KEY, rng.randbytes(3000)), record(1, b"bob", b"v"), record(2, b"bob")]
        batches.append(batch(rows, codec=codec))
    model = LogModel()
    model.segments[0][0] = batches[0]
    logs = model.write(tmp_path / "original" / "logs").parent
    for number, content in enumerate(batches[1:], 1):
        folder = shutil.copytree(logs / "orders-0", logs / f"orders-{number}")
        log = folder / f"{0:020d}.log"
        log.write_bytes(content + log.read_bytes()[len(batches[0]) :])
    at = tmp_path / "mounted"
    at.mkdir()
    with ExitStack() as stack:
        written = [each[1000:1040] for each in batches]
        disk = Ext4(logs.parent, written, tmp_path / "image", at, stack)
        disk.again()
        yield disk


def words_of(log_dir: Path, *options: str) -> list[str]:
    return ["erase", "--topic=orders", f"--key={KEY.decode()}", "--yes", *options, str(log_dir)]


def erase(log_dir: Path, *options: str) -> int:
    return run(*words_of(log_dir, *options)).exit_status


def finish(log_dir: Path, certificate: Path) -> int:
    return run("erase", "--finish", f"--certificate={certificate}", log_dir).exit_status


def test_after_it_is_finished_no_block_has_the_key_or_a_record(ext4: Ext4, tmp_path: Path) -> None:
    assert ext4.left() == {KEY, *ext4.written}
    assert erase(ext4.logs) == 1
    assert ext4.left() == {KEY, LISTED, *ext4.written}

    assert finish(ext4.logs, tmp_path / "erased.json") == 0

    assert ext4.left() == set()
    assert "free blocks" in (tmp_path / "erased.json").read_text()


def test_without_undo_data_the_old_segments_are_overwritten_at_once(ext4: Ext4) -> None:
    assert erase(ext4.logs, "--no-undo") == 1

    assert ext4.left() == {LISTED}


def test_an_unfinished_segment_of_the_cleaner_is_overwritten(ext4: Ext4) -> None:
    log = ext4.original / "logs" / "orders-0" / f"{0:020d}.log"
    shutil.copyfile(log, log.with_suffix(".log.cleaned"))
    ext4.again()

    assert erase(ext4.logs, "--no-undo") == 1

    assert ext4.left() == {LISTED}


@at_some_or_each_kind
def test_a_killed_erase_leaves_no_record_once_it_is_finished(
    ext4: Ext4, killable: KillableKdump, tmp_path: Path, is_each_kind: bool
) -> None:
    """Its key may be in free blocks: a list that was written for a run that never began."""
    words = words_of(ext4.logs)
    kinds = kinds_of_changes(lambda: run(*words))
    for at in moments_of_kinds(kinds, is_each_kind=is_each_kind):
        ext4.again()
        assert killable.run_and_kill(words, at) == -signal.SIGKILL
        assert erase(ext4.logs) in (0, 1)

        assert finish(ext4.logs, tmp_path / f"erased-{at}.json") == 0

        assert ext4.left() <= {LISTED}


@at_some_or_each_kind
def test_a_killed_finish_leaves_nothing_once_it_is_run_again(
    ext4: Ext4, killable: KillableKdump, tmp_path: Path, is_each_kind: bool
) -> None:
    assert erase(ext4.logs) == 1
    shutil.rmtree(ext4.original / "logs")
    shutil.copytree(ext4.logs, ext4.original / "logs")
    certificate = tmp_path / "erased.json"
    words = ["erase", "--finish", f"--certificate={certificate}", f"--key={KEY.decode()}"]
    words.append(str(ext4.logs))
    kinds = kinds_of_changes(lambda: run(*words))
    for at in moments_of_kinds(kinds, is_each_kind=is_each_kind):
        ext4.again()
        certificate.unlink(missing_ok=True)
        assert killable.run_and_kill(words, at) == -signal.SIGKILL
        assert certificate.exists() or run(*words).exit_status == 0

        assert ext4.left() == set()
