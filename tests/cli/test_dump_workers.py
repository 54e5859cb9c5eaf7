"""``kdump dump-segment`` with several processes prints the same as with one."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from builders.batches import batch, batches, record
from builders.in_process import Outcome, run_kdump
from builders.message_sets import wrapped_values
from builders.programs import in_a_fresh_process

pytestmark = pytest.mark.slow

NAME = f"{0:020d}.log"

WITH_WORKERS = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the entry point does
from kdump.cli.main import run
from kdump.compiled import library
from kdump.dump import workers
from kdump.scan import batches
library.compiled = lambda: None  # a compiled loop needs no workers
workers.WORTHWHILE_BYTES = 0
workers.usable_cpus = lambda: 3
batches.WINDOW_BYTES = 2_000
batches.read_windows.__kwdefaults__["window_bytes"] = 2_000
"""

DUMP_ALL = (
    WITH_WORKERS
    + """
import pickle
from pathlib import Path
from builders.in_process import run_kdump
root, *options = sys.argv[1:]
found = {
    (folder.name, option): run_kdump(["dump-segment", option, *os.listdir(folder)], folder)
    for folder in Path(root).iterdir()
    for option in options
}
Path(root, "outcomes").write_bytes(pickle.dumps(found))
"""
)

DIES = """
from kdump.dump import workers
workers._texts = lambda *_: os._exit(3)
"""

FAILS = """
from kdump.dump import workers
def fails(*_):
    raise OSError(5, "Input/output error", "segment")
workers._texts = fails
"""


def program(more: str = "") -> str:
    return f"{WITH_WORKERS}{more}\nsys.exit(run(sys.argv[1:]))"


def shared_dump(path: Path, more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", program(more), "dump-segment", "--print-data-log", path.name],
        cwd=path.parent,
        capture_output=True,
        check=False,
    )


def damaged(part: bytes, at: int) -> bytes:
    return part[:at] + bytes([part[at] ^ 0x55]) + part[at + 1 :]


SOUND = batches(60, 7)

CONTENTS = {
    "sound": SOUND,
    "a wrong checksum": [*SOUND[:31], damaged(SOUND[31], -1 % len(SOUND[31])), *SOUND[32:]],
    "a wrong count": [*SOUND[:31], damaged(SOUND[31], 60), *SOUND[32:]],
    "gaps and offsets that go back": [*SOUND[:10], *SOUND[40:], *SOUND[20:30]],
    "a torn tail": [*SOUND, SOUND[0][:40]],
    "zeroes": [*SOUND, bytes(500)],
    "mixed magics": [wrapped_values([b"x"] * 30), *SOUND, wrapped_values([b"y"], first_offset=9)],
    "a large batch": [*SOUND[:5], batch([record(35, value=b"v" * 9_000)]), *SOUND[6:]],
    "nothing": [],
}


OPTIONS = ("--print-data-log", "--deep-iteration")


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Mapping[tuple[str, str], Outcome]]:
    """Dump each content in each way with workers, all in one process: to start one takes long.

    Gives the directory of the contents, too.
    """
    root = tmp_path_factory.mktemp("shared")
    for name, content in CONTENTS.items():
        (root / name).mkdir()
        (root / name / NAME).write_bytes(b"".join(content))
    in_a_fresh_process(DUMP_ALL, str(root), *OPTIONS)
    found: Mapping[tuple[str, str], Outcome] = pickle.loads((root / "outcomes").read_bytes())
    return root, found


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("option", OPTIONS)
def test_the_outcome_is_the_same_as_with_one_process(
    name: str, option: str, shared: tuple[Path, Mapping[tuple[str, str], Outcome]]
) -> None:
    root, found = shared
    assert found[name, option] == run_kdump(["dump-segment", option, NAME], root / name)


@pytest.mark.parametrize(("more", "what"), [(DIES, b"ended early"), (FAILS, b"Input/output")])
def test_a_worker_that_fails_is_an_operational_error(
    tmp_path: Path, more: str, what: bytes
) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(SOUND))
    run = shared_dump(path, more)
    assert run.returncode == 8
    assert what in run.stderr
    assert run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("end", ["closed pipe", "interrupt"])
def test_no_process_is_left_behind(tmp_path: Path, end: str) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(batches(3_000, 7)))
    with subprocess.Popen(
        [sys.executable, "-c", program(), "dump-segment", "--print-data-log", NAME],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        if end == "interrupt":
            os.killpg(process.pid, signal.SIGINT)
        process.stdout.close()
        said = process.stderr.read()
        process.wait()
    assert said == b"" or end == "interrupt"
    assert group_ends(process.pid)


def group_ends(group: int) -> bool:
    """Whether every process of ``group`` ends within ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
    return False
