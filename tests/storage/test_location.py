"""Locations are values: paths that know their storage."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kdump.storage.local_disk import local


@pytest.mark.parametrize("path", ["/data/kafka", "logs/t-0", "./x//y/", ".", "..", "/", ""])
def test_a_local_location_is_written_as_its_path(path: str) -> None:
    location, expected = local(path), Path(path)
    assert str(location) == str(expected)
    assert location.name == expected.name
    assert str(location.parent) == str(expected.parent)
    assert str(location / "child") == str(expected / "child")


@pytest.mark.parametrize(
    ("path", "around"),
    [("d1/t-0", "d1"), ("t-0", "."), (".", ".."), ("..", "../.."), ("d/..", "d/../.."), ("/", "/")],
)
def test_what_is_around_a_relative_path_is_relative(path: str, around: str) -> None:
    assert str(local(path).around) == around


def test_a_pickled_location_reads_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    location = local(tmp_path) / "file"
    again = pickle.loads(pickle.dumps(location))
    assert again == location
    assert again.read() == b"data"


def test_links_are_resolved_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    link = local(tmp_path / "link")
    assert link.as_absolute() == link
    assert link.resolved() == local((tmp_path / "real").resolve())
    assert link.is_same(local(tmp_path / "real"))
    assert not link.is_same(local(tmp_path))


def test_a_local_location_has_a_local_path(tmp_path: Path) -> None:
    assert local(tmp_path).local_path == tmp_path
