"""A tar archive is read in place, and nothing in it is believed."""

from __future__ import annotations

import errno
import io
import os
import pickle
import struct
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.storage import tar_index
from kdump.storage.entries import Entry, EntryKind, SpecialFileError
from kdump.storage.location import Location
from kdump.storage.places import parse_location
from kdump.storage.tar_archive import TarArchive
from kdump.storage.tar_headers import tar_headers
from kdump.storage.tar_sparse import TarDamageError

FORMATS: Final = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
LONG: Final = "a" * 90 + "/" + "ü" * 80


class Packer:
    """Writes an archive, member by member."""

    def __init__(self, path: Path, archive_format: int = tarfile.PAX_FORMAT) -> None:
        self.path = path
        self._format = archive_format
        self._made: list[tuple[tarfile.TarInfo, bytes]] = []

    def add(
        self, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, to: str = ""
    ) -> Packer:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size, info.mtime = kind, to, len(data), 1_700_000_000
        self._made.append((info, data))
        return self

    def write(self) -> Location:
        """Write the archive; returns the location of its root."""
        with tarfile.open(self.path, "w", format=self._format) as archive:
            for info, data in self._made:
                archive.addfile(info, io.BytesIO(data))
        return parse_location(f"{self.path}!/")


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    return Packer(tmp_path / "a.tar")


def storage_of(root: Location) -> TarArchive:
    assert isinstance(root.storage, TarArchive)
    return root.storage


def problems(root: Location) -> list[str]:
    root.entries()
    return [each.what for each in storage_of(root).problems]


def tree(location: Location) -> dict[str, Any]:
    """All names below a location, with the content of files."""
    found: dict[str, Any] = {}
    for entry in location.entries():
        below = location / entry.name
        if entry.kind is EntryKind.DIRECTORY:
            found[entry.name] = tree(below)
        else:
            found[entry.name] = below.read() if entry.kind is EntryKind.FILE else entry.kind
    return found


@pytest.mark.parametrize("archive_format", [*FORMATS, tarfile.USTAR_FORMAT])
def test_files_are_listed_with_their_sizes_and_times(tmp_path: Path, archive_format: int) -> None:
    root = Packer(tmp_path / "a.tar", archive_format).add("./d/file", b"12345").write()
    assert root.entries() == [Entry("d", EntryKind.DIRECTORY)]
    expected = Entry("file", EntryKind.FILE, False, 5, 1_700_000_000 * 10**9)
    assert (root / "d").entries() == [expected]
    assert (root / "d" / "file").status() == expected


def test_times_of_a_pax_header_are_kept_to_the_nanosecond(packer: Packer) -> None:
    packer.add("file")
    packer._made[0][0].pax_headers = {"mtime": "1700000000.123456789"}
    assert packer.write().entries()[0].modified_ns == 1_700_000_000_123_456_789


@pytest.mark.parametrize("archive_format", FORMATS)
@pytest.mark.parametrize("name", [LONG, "caf\udce9/\udcff", "a b%/`c`\n", "<script>/\u202e"])
def test_names_are_kept(tmp_path: Path, archive_format: int, name: str) -> None:
    root = Packer(tmp_path / "a.tar", archive_format).add(name, b"x").write()
    directory, _, file = name.partition("/")
    assert tree(root) == {directory: {file: b"x"}}
    assert not problems(root)


@pytest.mark.parametrize(
    "name", ["a/b", "a//b", "./a/b", ".//a///b", "a/./b", "a/././/b", "./a/.//./b"]
)
@pytest.mark.parametrize("archive_format", [*FORMATS, tarfile.USTAR_FORMAT])
def test_empty_parts_of_a_name_and_dots_mean_nothing(
    tmp_path: Path, archive_format: int, name: str
) -> None:
    root = Packer(tmp_path / "a.tar", archive_format).add(name, b"x").write()
    assert tree(root) == {"a": {"b": b"x"}}
    assert parse_location(f"{tmp_path}/a.tar!/{name}").read() == b"x"
    assert not problems(root)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE])
@pytest.mark.parametrize("name", ["a/", "a//", "./a/"])
def test_a_name_with_a_slash_at_its_end_is_a_directory(
    packer: Packer, kind: bytes, name: str
) -> None:
    root = packer.add(name, kind=kind).add("a/b", b"x").add("c/d/", kind=kind).write()
    assert tree(root) == {"a": {"b": b"x"}, "c": {"d": {}}}
    assert not problems(root)


def test_content_with_the_name_of_a_directory_is_left_out(packer: Packer) -> None:
    root = packer.add("a/", b"content").add("b", b"x").write()
    assert tree(root) == {"b": b"x"}
    assert problems(root) == [
        "a/: left out, because it has content and the name of a directory",
    ]


@given(
    names=st.dictionaries(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join),
        st.binary(max_size=1500),
        max_size=6,
    ),
    archive_format=st.sampled_from(FORMATS),
)
def test_an_archive_has_what_was_unpacked_from_it(
    tmp_path_factory: pytest.TempPathFactory, names: dict[str, bytes], archive_format: int
) -> None:
    path = tmp_path_factory.mktemp("packed") / "a.tar"
    packer = Packer(path, archive_format)
    kept: dict[str, bytes] = {}
    for name, data in names.items():
        inside = [f"{name}/", *(f"{each}/" for each in kept)]
        if not any(
            f"{each}/".startswith(f"{name}/") or inside[0].startswith(f"{each}/") for each in kept
        ):
            kept[name] = data
            packer.add(name, data)
    root = packer.write()
    for name, data in kept.items():
        location = parse_location(f"{path}!/{name}")
        assert location.read() == data
        with location.open_file() as file:
            buffer = bytearray(7)
            count = file.read_into(memoryview(buffer), 3)
            assert bytes(buffer[:count]) == data[3:10]
    assert not problems(root)


def test_a_pickled_location_reads_the_same(packer: Packer) -> None:
    location = packer.add("d/file", b"data").write() / "d" / "file"
    again = pickle.loads(pickle.dumps(location))
    assert (again, again.read()) == (location, b"data")
    assert str(location) == f"{packer.path}!/d/file"
    assert parse_location(str(location)) == location


def test_a_relative_name_stays_as_it_was_given(
    packer: Packer, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer.add("file", b"data").write()
    monkeypatch.chdir(packer.path.parent)
    location = parse_location("a.tar!/file")
    monkeypatch.chdir("/")
    assert (str(location), location.read()) == ("a.tar!/file", b"data")


@pytest.mark.parametrize("path", ["", "/", "/.", "//"])
def test_the_root_can_be_written_in_several_ways(packer: Packer, path: str) -> None:
    packer.add("file", b"data").write()
    root = parse_location(f"{packer.path}!{path}")
    assert str(root) == f"{packer.path}!/"
    assert (root / "file").read() == b"data"


def test_a_missing_member_and_a_missing_archive_have_no_kind(packer: Packer) -> None:
    root = packer.add("file").write()
    assert (root / "missing").kind() is None
    assert parse_location(f"{packer.path.with_name('other.tar')}!/x").kind() is None
    with pytest.raises(NotADirectoryError):
        (root / "file").entries()
    with pytest.raises(IsADirectoryError):
        root.open_file()


def test_the_last_of_several_members_counts(packer: Packer) -> None:
    root = packer.add("file", b"first").add("file", b"last").write()
    assert tree(root) == {"file": b"last"}
    assert problems(root) == ["file: is there several times; the last one counts"]
    assert not any(each.is_failure for each in storage_of(root).problems)


def test_a_hard_link_to_an_earlier_file_is_that_file(packer: Packer) -> None:
    root = packer.add("file", b"data").add("link", kind=tarfile.LNKTYPE, to="file").write()
    assert tree(root) == {"file": b"data", "link": b"data"}
    assert not problems(root)


@pytest.mark.parametrize(
    ("name", "kind", "to", "reason"),
    [
        ("../out", tarfile.REGTYPE, "", "because .. in it leads elsewhere"),
        ("d/../../out", tarfile.DIRTYPE, "", "because .. in it leads elsewhere"),
        ("link", tarfile.SYMTYPE, "/etc/passwd", "which is not followed"),
        ("link", tarfile.LNKTYPE, "/etc/passwd", "something that is no earlier file"),
        ("link", tarfile.LNKTYPE, "link", "something that is no earlier file"),
        ("good/below", tarfile.REGTYPE, "", "is not a directory"),
        ("x" * 5000, tarfile.REGTYPE, "", "no file can have this name"),
        ("strange", b"Y", "", "an unknown type"),
    ],
)
def test_what_leads_out_of_the_archive_is_left_out(
    packer: Packer, name: str, kind: bytes, to: str, reason: str
) -> None:
    root = packer.add("good", b"data").add(name, kind=kind, to=to).write()
    files = {each: data for each, data in tree(root).items() if isinstance(data, bytes)}
    assert files == {"good": b"data"}
    (said,) = storage_of(root).problems
    assert reason in said.what
    assert said.is_failure
    assert (root / "link").kind() is None


def test_absolute_names_are_relative_to_the_archive(packer: Packer) -> None:
    root = packer.add("/etc/passwd", b"data").write()
    assert tree(root) == {"etc": {"passwd": b"data"}}
    assert problems(root) == ["absolute names are read as relative to the archive"]


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_special_files_are_never_opened(packer: Packer, kind: bytes) -> None:
    location = packer.add("special", kind=kind).write() / "special"
    for refused in (location.open_file, location.read):
        with pytest.raises(SpecialFileError):
            refused()


@pytest.mark.parametrize("archive_format", FORMATS)
def test_an_archive_that_ends_early_is_read_up_to_there(
    tmp_path: Path, archive_format: int
) -> None:
    path = tmp_path / "a.tar"
    Packer(path, archive_format).add("one", b"1" * 1000).add("two", b"2" * 1000).write()
    whole = path.read_bytes()
    end = -(-len(whole.rstrip(b"\0")) // 512) * 512
    for cut in (*range(512, end, 200), end - 512, end):
        path.write_bytes(whole[:cut])
        root = parse_location(f"{path}!/")
        said = problems(root)
        assert said
        assert storage_of(root).problems[-1].is_failure
        for name, data in tree(root).items():
            assert data == {"one": b"1", "two": b"2"}[name] * len(str(data, "ascii"))
            assert len(data) == 1000 or any(name in each for each in said)


def _field(value: int, width: int = 12) -> bytes:
    return (
        b"\x80" + value.to_bytes(width - 1, "big")
        if value >= 8**11
        else b"%0*o\0" % (width - 1, value)
    )


def _header(name: bytes, kind: bytes, size: bytes, rest: bytes = b"") -> bytes:
    """A header of GNU's format, with ``rest`` from byte 345 on."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124:136] = size
    block[136:148] = _field(0)
    block[156:157] = kind
    block[257:265] = b"ustar  \0"
    block[345 : 345 + len(rest)] = rest
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _sparse(parts: Sequence[tuple[int, int]], size_bytes: int, stored: bytes) -> bytes:
    numbers = b"".join(_field(each) for part in parts for each in part)
    rest = bytes(41) + numbers.ljust(96, b"\0") + b"\0" + _field(size_bytes)
    return _header(b"sparse", b"S", _field(len(stored)), rest) + stored.ljust(512, b"\0")


HOSTILE: Final = {
    "negative size": _header(b"x", b"0", b"\xff" * 11 + b"\x00"),
    "size of exabytes": _header(b"x", b"0", b"\x80" + b"\x7f" * 11),
    "long name of exabytes": _header(b"x", b"L", b"\x80" + b"\x7f" * 11),
    "pax header of exabytes": _header(b"x", b"x", b"\x80" + b"\x7f" * 11),
    "pax record that is too long": _header(b"x", b"x", _field(20))
    + b"999 path=a\n".ljust(512, b"\0"),
    "pax record of no length": _header(b"x", b"x", _field(20)) + b"0 path=a\n".ljust(512, b"\0"),
    "sparse parts out of order": _sparse([(600, 5), (0, 5)], 1000, b"x" * 10),
    "sparse parts of more than is stored": _sparse([(0, 1 << 40)], 1 << 41, b"x" * 10),
    "sparse file smaller than its parts": _sparse([(0, 10)], 5, b"x" * 10),
    "checksum": b"y" + _header(b"x", b"0", _field(0))[1:],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_false_claims_end_the_archive(packer: Packer, what: str) -> None:
    packer.add("good", b"data").write()
    good = packer.path.read_bytes()[:1024]
    packer.path.write_bytes(good + HOSTILE[what] + bytes(1024))
    root = parse_location(f"{packer.path}!/")
    assert "members after it may be missing" in problems(root)[-1]
    assert tree(root)["good"] == b"data"


def test_a_sparse_member_that_claims_terabytes_is_left_out(packer: Packer) -> None:
    packer.add("good", b"data").write()
    good = packer.path.read_bytes()
    packer.path.write_bytes(_sparse([(0, 10)], 5 << 40, b"x" * 10) + good)
    root = parse_location(f"{packer.path}!/")
    assert tree(root) == {"good": b"data"}
    assert problems(root) == [
        f"sparse: left out, a sparse file that claims to have {5 << 40} bytes"
    ]


@pytest.mark.parametrize("archive_format", ["gnu", "pax"])
def test_sparse_members_are_read_with_their_holes(tmp_path: Path, archive_format: str) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        for position in (0, 3 << 20, 40 << 20, *range(50 << 20, 90 << 20, 1 << 20)):
            file.seek(position)
            file.write(struct.pack(">q", position) * 10)
        file.truncate(100 << 20)
    path = tmp_path / "a.tar"
    tar = ["tar", f"--format={archive_format}", "-S", "-C", str(tmp_path), "-cf", str(path)]
    subprocess.run([*tar, "sparse"], check=True)
    location = parse_location(f"{path}!/sparse")
    whole = source.read_bytes()
    assert path.stat().st_size < 2 << 20
    assert location.read() == whole
    assert location.status().hole_bytes > 90 << 20
    with location.open_file() as stored:
        ranges = list(stored.data_ranges(0, len(whole)))
    rebuilt = bytearray(len(whole))
    for start, end in ranges:
        rebuilt[start:end] = whole[start:end]
    assert rebuilt == whole
    assert sum(end - start for start, end in ranges) < 1 << 20


def test_a_changed_archive_is_named(packer: Packer) -> None:
    location = packer.add("file", b"data").write() / "file"
    assert location.read() == b"data"
    packer.add("file", b"other").write()
    with pytest.raises(OSError, match="it was changed while it was read") as caught:
        location.read()
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(packer.path))
    assert parse_location(str(location)).read() == b"other"


def test_another_archive_of_the_same_size_and_time_is_not_read_as_the_first(
    packer: Packer, tmp_path: Path
) -> None:
    location = packer.add("file", b"data").write() / "file"
    assert location.read() == b"data"
    status = packer.path.stat()
    other = tmp_path / "other.tar"
    Packer(other).add("file", b"DATA").write()
    os.utime(other, ns=(status.st_mtime_ns, status.st_mtime_ns))
    other.rename(packer.path)
    with pytest.raises(OSError, match="it was changed while it was read"):
        location.read()


@pytest.mark.parametrize("between", [0, 512, 1024, 9 << 20])
def test_an_archive_after_the_end_of_another_is_said(packer: Packer, between: int) -> None:
    packer.add("one", b"1").write()
    first = packer.path.read_bytes()
    packer.path.write_bytes(first + bytes(between) + first)
    assert problems(parse_location(f"{packer.path}!/")) == [
        "more data after the end marker at byte 1024: members after it may be missing"
    ]
    packer.path.write_bytes(first + bytes(between))
    assert not problems(parse_location(f"{packer.path}!/"))


def test_members_after_a_lone_empty_block_are_said_to_be_missing(packer: Packer) -> None:
    packer.add("one").add("two").write()
    whole = packer.path.read_bytes()
    packer.path.write_bytes(whole[:512] + bytes(512) + whole[512:])
    root = parse_location(f"{packer.path}!/")
    assert tree(root) == {"one": b""}
    assert "members after it may be missing" in problems(root)[0]


def test_an_archive_of_terabytes_of_holes_is_empty(packer: Packer) -> None:
    packer.add("one", b"1").write()
    os.truncate(packer.path, 8 << 40)
    root = parse_location(f"{packer.path}!/")
    assert tree(root) == {"one": b"1"}
    assert not problems(root)


def test_a_name_in_hundreds_of_directories_is_left_out(packer: Packer) -> None:
    packer.add("good", b"data").add("/".join("a" * 66)).add("/".join("b" * 2000))
    root = packer.write()
    assert tree(root) == {"good": b"data"}
    said = problems(root)
    assert len(said) == 2
    assert all("it is in more than 64 directories" in each for each in said)


@pytest.mark.parametrize("limit", ["_MOST_DIRECTORIES", "_MOST_MEMBERS"])
def test_too_many_members_end_the_archive(
    packer: Packer, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(tar_index, limit, 3)
    for number in range(9):
        packer.add(f"{number}/file")
    root = packer.write()
    assert len(tree(root)) < 9
    assert problems(root) == ["too many members: members after it may be missing"]


def test_no_problem_of_many_archives_is_forgotten(tmp_path: Path) -> None:
    roots = []
    for number in range(20):
        path = tmp_path / f"{number}.tar"
        Packer(path).add("file", b"data").write()
        path.write_bytes(path.read_bytes()[:1024])
        roots.append(parse_location(f"{path}!/"))
        roots[-1].entries()
    assert all(storage_of(root).problems for root in roots)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(os.urandom(5000))
    with pytest.raises(OSError, match="not a tar archive that can be read"):
        parse_location(f"{tmp_path / 'a.tar'}!/").entries()


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        found = self._data[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)


@given(
    base=st.sampled_from([*HOSTILE.values(), _sparse([(0, 5), (600, 5)], 700, b"x" * 10)]),
    changes=st.lists(
        st.tuples(st.integers(0, 1023), st.binary(min_size=1, max_size=12)), max_size=4
    ),
    is_summed=st.booleans(),
)
def test_any_bytes_are_headers_or_damage(
    base: bytes, changes: list[tuple[int, bytes]], is_summed: bool
) -> None:
    data = bytearray(base.ljust(3072, b"\0"))
    for position, new in changes:
        data[position : position + len(new)] = new
    if is_summed:
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
    try:
        for header in tar_headers(_Bytes(bytes(data))):
            assert header.size_bytes >= 0
            assert all(each.start >= 0 and each.length >= 0 for each in header.pieces)
    except TarDamageError:
        pass
