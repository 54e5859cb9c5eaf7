"""Problems of what was named, as lines on standard error."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kdump.cli.output.diagnostics import Diagnostics
from kdump.storage.local_disk import local


@pytest.mark.parametrize(("number", "is_advised"), [(errno.EACCES, True), (errno.EIO, False)])
def test_a_missing_permission_says_as_whom_to_run(number: int, is_advised: bool) -> None:
    diagnostics = Diagnostics()
    diagnostics.report(local(Path("/data")), OSError(number, "no", "/data/orders-0"))
    (line,) = diagnostics.lines
    assert line.startswith("/data/orders-0: no")
    assert line.endswith("run kdump as the user that the broker runs as, or as root") is is_advised
