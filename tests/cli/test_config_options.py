"""Topics use the configuration of the cluster that their log directory belongs to."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.batches import BASE_TIMESTAMP_MS
from builders.freeing import logs_of, of_type, rows_of, run, write_line
from builders.json_answers import objects
from builders.log_directories import TOPIC_ID
from builders.metadata_log import TOPIC_RESOURCE, config_record, topic_record, write_metadata_log
from builders.verified import END_OFFSET, LogModel, file
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.log.partition import Partition

IN_TURN = pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
"""Orders of the directories: the last one must not decide for the others."""


def clusters(
    tmp_path: Path, key: str, *values: str | None, model: LogModel | None = None
) -> list[Path]:
    """Return a log directory of each of so many clusters, in which ``orders`` has this property.

    None is a cluster without metadata.
    """
    roots = []
    for number, value in enumerate(values):
        root = (model or LogModel()).write(tmp_path / f"cluster-{number}").parent
        path = root / names.META_PROPERTIES
        path.write_bytes(path.read_bytes().replace(b"a-cluster", root.name.encode()))
        if value is not None:
            config = config_record(TOPIC_RESOURCE, "orders", key, value)
            write_metadata_log(root, [topic_record("orders", TOPIC_ID.int), config])
        roots.append(root)
    return roots


def of_orders(said: Sequence[dict[str, object]], field: str) -> dict[object, object]:
    """Return a field of ``orders`` by log directory."""
    return {
        row["log_dir"]: row[field]
        for row in of_type(list(said), "partition")
        if row["topic"] == "orders"
    }


def indexed(root: Path) -> bool:
    """Tell whether the index of the first segment has entries."""
    return file(root / "orders-0", 0, FileKind.OFFSET_INDEX).stat().st_size > 0


@IN_TURN
def test_retain_uses_the_retention_of_the_directorys_cluster(tmp_path: Path, order: int) -> None:
    roots = clusters(tmp_path, "retention.ms", "1000", "-1", None)

    now = f"--now={BASE_TIMESTAMP_MS + 10**12}"
    outcome = run("retain", *roots[::order], "--topic=orders", now)

    assert outcome.exit_status == 4
    assert f"{roots[2]}/orders-0: left unchanged" in outcome.stdout.decode()
    assert [logs_of(root / "orders-0") for root in roots] == [[END_OFFSET], [0, 12], [0, 12]]


@IN_TURN
def test_compact_uses_the_policy_of_the_directorys_cluster(tmp_path: Path, order: int) -> None:
    roots = clusters(tmp_path, "cleanup.policy", "compact", "delete", None)

    by_name = rows_of("compact", *roots[::order], "--topic=orders", "--dry-run")
    all_compacted = rows_of("compact", *roots[::order], "--all-compacted", "--dry-run")

    left = of_orders(by_name, "left_because")
    assert [left[str(root)] is None for root in roots] == [True, False, True]
    assert "cleanup.policy" in str(left[str(roots[1])])
    assert list(of_orders(all_compacted, "topic")) == [str(roots[0])]


@IN_TURN
def test_recover_uses_the_index_interval_of_the_directorys_cluster(
    tmp_path: Path, order: int
) -> None:
    model = LogModel(is_clean=False)
    roots = clusters(tmp_path, "index.interval.bytes", "0", "4096", None, model=model)
    for root in roots:
        write_line(root, names.RECOVERY_POINT_CHECKPOINT, ("orders", 0), 0)

    run("recover", *roots[::order])

    assert [indexed(root) for root in roots] == [True, False, False]


@IN_TURN
def test_verify_uses_the_index_size_of_the_directorys_cluster(tmp_path: Path, order: int) -> None:
    roots = clusters(tmp_path, "segment.index.bytes", "8", "4096", None)

    said = rows_of("verify", *roots[::order])

    verdicts = of_orders(said, "verdict_kind")
    assert [verdicts[str(root)] for root in roots] == ["refused", "valid", "valid"]


@IN_TURN
@pytest.mark.parametrize(
    "command",
    [("rebuild-index",), ("verify", "--repair")],
    ids=" ".join,
)
def test_indexes_are_rebuilt_with_the_interval_of_the_directorys_cluster(
    tmp_path: Path, command: tuple[str, ...], order: int
) -> None:
    roots = clusters(tmp_path, "index.interval.bytes", "0", "4096", None)
    for root in roots:
        file(root / "orders-0", 0, FileKind.OFFSET_INDEX).unlink()

    run(*command, *roots[::order])

    assert [indexed(root) for root in roots] == [True, False, False]


@pytest.mark.parametrize("what", ["orders-0", "orders-0/00000000000000000000.log"])
def test_a_single_partition_uses_the_cluster_of_its_log_directory(
    tmp_path: Path, what: str
) -> None:
    roots = clusters(tmp_path, "index.interval.bytes", "0", "4096", None)
    for root in roots:
        file(root / "orders-0", 0, FileKind.OFFSET_INDEX).unlink()

    run("rebuild-index", *(root / what for root in roots))

    assert [indexed(root) for root in roots] == [True, False, False]


@pytest.mark.parametrize("args", [("orders-0",), (".", "--topic", "orders")], ids=" ".join)
def test_verify_reads_the_cluster_metadata_even_if_it_is_not_selected(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    (root,) = clusters(tmp_path, "segment.index.bytes", "8")

    said = rows_of("verify", root / args[0], *args[1:])

    assert [(row["topic"], row["verdict_kind"]) for row in of_type(said, "partition")] == [
        ("orders", "refused")
    ]


def test_no_start_is_predicted_for_a_single_segment(tmp_path: Path) -> None:
    (root,) = clusters(tmp_path, "segment.index.bytes", "8")

    said = rows_of("verify", file(root / "orders-0", 0, FileKind.LOG))

    assert [row["verdict_kind"] for row in of_type(said, "partition")] == [""]


@pytest.mark.parametrize("args", [("orders-0",), (".", "--topic", "orders"), (".",)], ids=" ".join)
def test_verify_continues_if_the_cluster_metadata_cannot_be_read(
    tmp_path: Path, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root,) = clusters(tmp_path, "segment.index.bytes", "8")

    def broken(partition: Partition) -> None:
        raise OSError(errno.EIO, "Input/output error", str(partition.path))

    monkeypatch.setattr("kdump.state.metadata.cluster.read_cluster_image", broken)
    outcome = run("verify", root / args[0], *args[1:], "--output", "jsonl")

    assert outcome.exit_status == 8
    assert f"{root}/__cluster_metadata-0: Input/output error".encode() in outcome.stderr
    said = objects(outcome.stdout)
    assert of_orders(said, "verdict_kind") == {str(root): "valid"}
