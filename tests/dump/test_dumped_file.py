from __future__ import annotations

from pathlib import Path

import pytest

from kdump.dump.dumped_file import DumpedFile
from kdump.formats.names import FileKind, FileStage
from kdump.storage.local_disk import local


@pytest.mark.parametrize(
    ("text", "name"),
    [("./a//b.log", "./a/b.log"), ("a.log/", "a.log"), ("//", "/"), ("a/../b", "a/../b")],
)
def test_names_are_printed_as_java_prints_them(text: str, name: str) -> None:
    assert DumpedFile.named(text).name == name


def test_an_absolute_name_is_not_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert DumpedFile.named("./x/../a.log").absolute_name == f"{tmp_path}/./x/../a.log"
    assert DumpedFile.named("/x/a.log").absolute_name == "/x/a.log"


def test_the_base_offset_is_the_text_before_the_first_dot() -> None:
    assert DumpedFile.named("d.1/00000000000000000042.index.swap").base_offset == 42


def test_a_name_without_an_offset_is_a_problem() -> None:
    file = DumpedFile.named("x.index")
    assert file.base_offset is None
    assert str(file.base_offset_problem) == (
        "x.index: file name does not begin with an offset, offsets are counted from 0, "
        "expected a number before the first dot, found 'x'"
    )


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("7.index", FileStage.LIVE),
        ("7.index.swap", FileStage.SWAP),
        ("7.index.cleaned", FileStage.CLEANED),
        ("7.index.deleted", FileStage.DELETED),
    ],
)
def test_the_stage_is_the_end_of_the_name(name: str, stage: FileStage) -> None:
    assert DumpedFile.named(name).stage is stage


def test_a_neighbour_has_the_same_suffix(tmp_path: Path) -> None:
    (tmp_path / "7.log").touch()
    swap = tmp_path / "7.log.swap"
    swap.touch()
    file = DumpedFile.named(str(tmp_path / "7.index.swap"))
    assert file.neighbour(FileKind.LOG) == local(swap)


def test_a_neighbour_may_have_the_suffix_of_the_next_stage(tmp_path: Path) -> None:
    swap = tmp_path / "7.log.swap"
    swap.touch()
    file = DumpedFile.named(str(tmp_path / "7.index.cleaned"))
    assert file.neighbour(FileKind.LOG) == local(swap)


def test_a_missing_neighbour_has_the_path_that_it_should_have(tmp_path: Path) -> None:
    file = DumpedFile.named(str(tmp_path / "7.index.swap"))
    assert file.neighbour(FileKind.LOG) == local(tmp_path / "7.log.swap")
