"""Findings about files that a broker reads before it loads any partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdump.check.bootstrap import check_bootstrap
from kdump.check.findings import Severity
from kdump.formats import names
from kdump.storage.local_disk import local

CHECKSUM_BYTE = 17
"""Of the first batch's checksum."""


@pytest.fixture
def bootstrap(fixtures: Path, tmp_path: Path) -> Path:
    """Return a copy of a ``bootstrap.checkpoint`` that a broker wrote."""
    return Path(shutil.copy(fixtures / "out/clean/d1" / names.BOOTSTRAP_CHECKPOINT, tmp_path))


def severities(path: Path) -> list[Severity]:
    return [finding.severity for finding in check_bootstrap(local(path.parent))]


def test_a_file_that_a_broker_wrote_has_no_findings(bootstrap: Path) -> None:
    assert severities(bootstrap) == []


def test_a_checksum_that_does_not_match_may_not_keep_a_broker_from_starting(
    bootstrap: Path,
) -> None:
    content = bytearray(bootstrap.read_bytes())
    content[CHECKSUM_BYTE] ^= 1
    bootstrap.write_bytes(content)

    (finding,) = check_bootstrap(local(bootstrap.parent))

    assert finding.severity is Severity.ERROR
    assert "may not start" in finding.what


def test_zeroes_after_the_last_batch_keep_a_broker_from_starting(bootstrap: Path) -> None:
    bootstrap.write_bytes(bootstrap.read_bytes() + bytes(50))

    assert severities(bootstrap) == [Severity.SEVERE]


def test_a_broker_ignores_an_incomplete_last_batch(bootstrap: Path) -> None:
    bootstrap.write_bytes(bootstrap.read_bytes()[:-1])

    assert severities(bootstrap) == [Severity.ERROR]
