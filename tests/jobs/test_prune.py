"""Which snapshots the rules of ``kdump backup prune`` keep."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from kdump.jobs.backup.prune import kept
from kdump.storage.repository_documents import BackedUpLogDirectory, RepositoryPiece, Snapshot


def snapshots(**times: str) -> dict[str, Snapshot]:
    """Return snapshots by name; the first letter of each name is its host."""
    return {name: _snapshot(name[0], text) for name, text in times.items()}


def _snapshot(host: str, text: str) -> Snapshot:
    begun_ms = round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    root = RepositoryPiece("0" * 64, 0)
    log_dir = BackedUpLogDirectory("/data", host, "c", 1, None, root, 0, 0, 0, 0, 0)
    return Snapshot(begun_ms, begun_ms, "1", (log_dir,))


ONE_HOST = snapshots(
    a1="2025-12-29T10:00",
    a2="2026-01-01T10:00",
    a3="2026-01-04T09:00",
    a4="2026-01-04T09:59",
    a5="2026-01-05T00:00",
    a6="2026-02-01T00:00",
)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"last": 2}, {"a5": ["last"], "a6": ["last"]}),
        ({"last": 99}, {name: ["last"] for name in ONE_HOST}),
        ({"hourly": 3}, {name: ["hourly"] for name in ("a4", "a5", "a6")}),
        ({"daily": 4}, {name: ["daily"] for name in ("a2", "a4", "a5", "a6")}),
        ({"weekly": 9}, {name: ["weekly"] for name in ("a4", "a5", "a6")}),
        ({"monthly": 2}, {"a5": ["monthly"], "a6": ["monthly"]}),
        ({"yearly": 9}, {"a1": ["yearly"], "a6": ["yearly"]}),
        ({"yearly": 9, "last": 1}, {"a1": ["yearly"], "a6": ["last", "yearly"]}),
    ],
)
def test_each_rule_keeps_the_last_of_its_periods(
    rules: Mapping[str, int], expected: Mapping[str, list[str]]
) -> None:
    assert kept(ONE_HOST, rules) == expected


def test_hosts_do_not_drive_out_the_snapshots_of_each_other() -> None:
    of_both = snapshots(a1="2026-01-01", a2="2026-01-02", b3="2026-01-03", b4="2026-01-04")
    assert [*kept(of_both, {"last": 1})] == ["a2", "b4"]
