"""Verify tells lost leader epochs from those of records that were deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.verified import END_OFFSET, LogModel, findings_in
from kdump.check.findings import Severity
from kdump.formats.checkpoints import EpochEntry


@pytest.mark.parametrize(
    ("first", "severity"),
    [
        (EpochEntry(0, 7), Severity.INFO),
        (EpochEntry(1, 14), Severity.INFO),
        (EpochEntry(1, END_OFFSET), Severity.INFO),
        (EpochEntry(1, 12), Severity.WARNING),  # where its records begin: lines are lost
        (EpochEntry(2, 14), Severity.WARNING),
    ],
    ids=str,
)
def test_epochs_that_begin_where_records_were_deleted_are_no_damage(
    first: EpochEntry, severity: Severity, tmp_path: Path
) -> None:
    entries = [first, *(each for each in LogModel().epochs if each.epoch > first.epoch)]
    path = LogModel(epochs=entries).write(tmp_path / "logs")
    found = {each.severity for each in findings_in(path.parent) if each.code == "epochs-missing"}
    assert found == {severity}
