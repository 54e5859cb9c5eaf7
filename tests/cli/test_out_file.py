"""The file of ``--out``: complete or not there, private, and never inside a log directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdump.cli.output.out_file import OutFile, OutFileError
from kdump.errors import UsageProblem
from kdump.formats import names


def checked(path: Path, *, force: bool = False) -> OutFile:
    return OutFile.checked(str(path), is_replaced=force)


def test_the_file_has_all_pieces_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    assert checked(tmp_path / "out.json").write([b"{", b"}\n"]) == 3
    assert (tmp_path / "out.json").read_text() == "{}\n"
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_replaced_file_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("old")
    (tmp_path / "out.json").chmod(0o644)
    checked(tmp_path / "out.json", force=True).write([b"new"])
    assert (tmp_path / "out.json").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o600


def test_an_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("old")
    with pytest.raises(UsageProblem, match="--force"):
        checked(tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == "old"


def test_a_file_that_was_created_meanwhile_is_kept(tmp_path: Path) -> None:
    out = checked(tmp_path / "out.json")
    (tmp_path / "out.json").write_text("theirs")
    with pytest.raises(UsageProblem, match="exists"):
        out.write([b"ours"])
    assert (tmp_path / "out.json").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    (tmp_path / "out.json").write_text("old")
    out = checked(tmp_path / "out.json", force=True)
    with pytest.raises(OutFileError, match=r"out\.json: No space left on device"):
        out.write(pieces())
    assert (tmp_path / "out.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    checked(tmp_path / "link.json", force=True).write([b"new"])
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


@pytest.mark.parametrize("name", ["out.json", "sub/out.json", "orders-0/out.json"])
def test_a_file_inside_a_log_directory_is_refused(tmp_path: Path, name: str) -> None:
    log_dir = tmp_path / "d1"
    (log_dir / "orders-0").mkdir(parents=True)
    (log_dir / "orders-0" / "00000000000000000000.log").touch()
    (log_dir / "sub").mkdir()
    (log_dir / names.META_PROPERTIES).write_text("version=1\n")
    with pytest.raises(UsageProblem, match="is inside the"):
        checked(log_dir / name)


def test_a_directory_of_kafka_0_7_beside_that_of_the_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.kafka").touch()
    (tmp_path / "documents").mkdir()
    assert checked(tmp_path / "documents" / "out.json").write([b"new"]) == 3
    with pytest.raises(UsageProblem, match=r"directory of Kafka 0\.7"):
        checked(tmp_path / "out.json")


def test_a_link_into_a_log_directory_is_refused(tmp_path: Path) -> None:
    log_dir = tmp_path / "d1"
    log_dir.mkdir()
    (log_dir / names.RECOVERY_POINT_CHECKPOINT).write_text("0\n0\n")
    (tmp_path / "out.json").symlink_to(log_dir / "out.json")
    with pytest.raises(UsageProblem, match="is inside the log directory"):
        checked(tmp_path / "out.json")


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageProblem, match="not a regular file"):
        checked(tmp_path / "pipe", force=True)
    with pytest.raises(UsageProblem, match="directory"):
        checked(tmp_path, force=True)
    with pytest.raises(UsageProblem, match="not a regular file"):
        checked(Path("/dev/null"), force=True)


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutFileError, match="No such file or directory"):
        checked(tmp_path / "missing" / "out.json")


def test_names_that_no_file_can_have_are_errors(tmp_path: Path) -> None:
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(OutFileError):
            checked(tmp_path / name)
