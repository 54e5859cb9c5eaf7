"""The configuration of each topic is that of the cluster that its log directory belongs to."""

from __future__ import annotations

from pathlib import Path

from builders.batches import BASE_TIMESTAMP_MS
from builders.freeing import logs_of, run
from builders.metadata_log import TOPIC_RESOURCE, config_record, topic_record, write_metadata_log
from builders.verified import END_OFFSET, LogModel
from kdump.formats import names


def test_each_clusters_topics_have_the_configuration_of_their_own_cluster(tmp_path: Path) -> None:
    roots = [LogModel().write(tmp_path / name).parent for name in ("one", "two", "three")]
    for number, root in enumerate(roots):
        path = root / names.META_PROPERTIES
        path.write_bytes(path.read_bytes().replace(b"a-cluster", b"cluster-%d" % number))
    for root, retention_ms in zip(roots, ("1000", "-1"), strict=False):
        config = config_record(TOPIC_RESOURCE, "orders", "retention.ms", retention_ms)
        write_metadata_log(root, [topic_record("orders", 1), config])

    for order in (roots, roots[::-1]):
        outcome = run("retain", *order, "--topic", "*", f"--now={BASE_TIMESTAMP_MS + 10**12}")
        assert outcome.exit_status == 4
        assert f"{roots[2]}/orders-0: left as it is" in outcome.stdout.decode()

    assert [logs_of(root / "orders-0") for root in roots] == [[END_OFFSET], [0, 12], [0, 12]]
