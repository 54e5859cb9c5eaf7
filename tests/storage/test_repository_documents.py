"""Every document that a backup can write is read as it was written."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kdump.storage.entries import is_file_name
from kdump.storage.repository_documents import (
    BackedUpDirectory,
    BackedUpFile,
    BackedUpLogDirectory,
    FileAttributes,
    NotBackedUp,
    RepositoryPiece,
    Snapshot,
    StoredDirectory,
)

IDS = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
SIZES = st.integers(0, 2**63 - 1)
TIMES = st.integers(-(2**63) * 10**9, 2**63 * 10**9 - 1)
NAMES = (
    st.binary(min_size=1, max_size=255)
    .map(lambda name: name.decode("utf-8", "surrogateescape"))
    .filter(is_file_name)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ATTRIBUTES = st.builds(FileAttributes, st.integers(0, 0o7777), IDS, IDS, TIMES)
PIECES = st.builds(
    RepositoryPiece, st.binary(min_size=32, max_size=32).map(bytes.hex), st.integers(0, 2**62)
)
DAMAGE = st.fixed_dictionaries(
    dict.fromkeys(("file", "severity", "code"), TEXTS)
    | dict.fromkeys(("position", "offset"), st.none() | st.integers())
    | {"what": TEXTS}
    | dict.fromkeys(("expected", "found", "loss"), st.none() | TEXTS)
)
SNAPSHOTS = st.builds(
    Snapshot,
    SIZES,
    SIZES,
    TEXTS,
    st.lists(
        st.builds(
            BackedUpLogDirectory,
            path=TEXTS,
            host=TEXTS,
            cluster_id=st.none() | TEXTS,
            node_id=st.none() | INT32,
            directory_id=st.none() | TEXTS,
            root=PIECES,
            partitions=SIZES,
            files=SIZES,
            size_bytes=SIZES,
            added_bytes=SIZES,
            damaged_files=SIZES,
            left_out=st.lists(st.builds(NotBackedUp, TEXTS, TEXTS), max_size=2).map(tuple),
            is_in_use=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
)


@st.composite
def backed_up_files(draw: st.DrawFn, name: str) -> BackedUpFile:
    """Return a file whose bytes are in the document, or in a few pieces."""
    content = draw(st.none() | st.binary(max_size=20))
    pieces = () if content is not None else tuple(draw(st.lists(PIECES, max_size=1)))
    return BackedUpFile(
        name,
        sum(each.size_bytes for each in pieces) if content is None else len(content),
        draw(ATTRIBUTES),
        draw(TIMES),
        draw(st.integers(0, 2**64 - 1)),
        content,
        pieces,
        tuple(draw(st.lists(DAMAGE, max_size=1))),
    )


@st.composite
def backed_up_directories(draw: st.DrawFn) -> BackedUpDirectory:
    """Return a directory with whatever a disk can say of it."""
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    count = draw(st.integers(0, len(names)))
    return BackedUpDirectory(
        draw(ATTRIBUTES),
        tuple(draw(backed_up_files(name)) for name in names[:count]),
        tuple(StoredDirectory(name, draw(PIECES)) for name in names[count:]),
    )


@given(backed_up_directories())
def test_every_directory_that_is_written_is_read(directory: BackedUpDirectory) -> None:
    assert BackedUpDirectory.decoded(directory.document()) == directory


@given(SNAPSHOTS)
def test_every_snapshot_that_is_written_is_read(snapshot: Snapshot) -> None:
    assert Snapshot.decoded(snapshot.document()) == snapshot


def test_what_other_versions_wrote_is_read() -> None:
    """Earlier ones did not say ``is_in_use``; later ones may say more."""
    root = RepositoryPiece("0" * 64, 0)
    log_dir = BackedUpLogDirectory("/data", "host", "c", 1, None, root, 0, 0, 0, 0, 0)
    snapshot = Snapshot(1, 2, "1", (log_dir,))
    fields = json.loads(snapshot.document())
    assert "is_in_use" not in fields["log_dirs"][0]
    for each in (fields, fields["log_dirs"][0], fields["log_dirs"][0]["root"]):
        each["later"] = {"of": "another version"}
    assert Snapshot.decoded(json.dumps(fields).encode()) == snapshot
