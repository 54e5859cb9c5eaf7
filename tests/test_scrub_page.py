"""The units and the CronJob of docs/scrub.md are accepted by what reads them, and kdump by them."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import yaml

from builders.in_process import run_kdump
from builders.verified import LogModel

PAGE: Final = (Path(__file__).parents[1] / "docs" / "scrub.md").read_text(encoding="utf-8")
METRICS: Final = "/var/lib/node_exporter/textfile/kdump.prom"
DATA: Final = "/var/lib/kafka/data"


def block(name: str) -> str:
    """Return the unit of this name."""
    found = re.search(rf"^`{re.escape(name)}`:\n\n```ini\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def parsed(unit: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit)
    return parser


def cron_job() -> Any:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return yaml.decode(found[1])


def run(words: list[str], places: Mapping[str, Path]) -> int:
    here = [str(places.get(word, word)) for word in words]
    return run_kdump(here, Path.cwd()).exit_status


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on the PATH")
    for name in ("kdump-scrub.service", "kdump-scrub.timer"):
        # The program need not be installed here, nor the manual.
        unit = block(name).replace("/usr/local/bin/kdump", "/bin/true")
        unit = re.sub("^Documentation=.*\n", "", unit, flags=re.MULTILINE)
        (tmp_path / name).write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    about_these = [line for line in done.stderr.splitlines() if "kdump-scrub" in line]
    assert about_these == []


def test_the_service_runs_kdump(tmp_path: Path) -> None:
    service = parsed(block("kdump-scrub.service"))["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "kdump"
    log_dir = LogModel().write(tmp_path / "logs").parent
    places = {
        "/var/lib/kdump/scrub.json": tmp_path / "scrub.json",
        METRICS: tmp_path / "kdump.prom",
        DATA: log_dir,
    }
    assert set(places) <= set(words)
    assert run(words, places) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"scrub.json", "kdump.prom", "logs"}
    written = re.findall(r"^# TYPE (\w+) ", places[METRICS].read_text(), re.MULTILINE)
    assert {*re.findall(r"kdump_verify_\w+", PAGE)} <= {*written}


def test_the_service_may_write_where_it_has_to() -> None:
    service = parsed(block("kdump-scrub.service"))["Service"]
    assert service["StateDirectory"] == "kdump"
    assert service["ReadWritePaths"] == str(Path(METRICS).parent)
    assert DATA.startswith(service["ReadOnlyPaths"])


def test_the_timer_is_of_the_service() -> None:
    timer = parsed(block("kdump-scrub.timer"))
    assert "Unit" not in timer["Timer"]
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_cron_job_runs_kdump(tmp_path: Path) -> None:
    job = cron_job()
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    log_dir = LogModel().write(tmp_path / "logs").parent
    places = {"/state/scrub.json": tmp_path / "scrub.json", "/data": log_dir}
    assert run(container["args"], places) == 0
    assert (tmp_path / "scrub.json").exists()


def test_the_cron_job_mounts_what_it_has_and_writes_no_data() -> None:
    spec = cron_job()["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["volumes"]}
    assert mounts["data"]["readOnly"] is True
    assert all(isinstance(each, str) for each in container["args"])
