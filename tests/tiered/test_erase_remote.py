"""``kdump erase --remote``: remote segments that hold what is erased are named, and stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from builders.freeing import of_type, rows_of, run
from builders.json_schemas import problem_of_document
from builders.read_records import all_records
from builders.tiered_fixture import TieredFixture
from builders.trees import contents_of
from builders.verified import LogModel

KEY = "key-5"


@pytest.fixture
def holding(tiered: TieredFixture, tmp_path: Path) -> list[str]:
    """Return the logs of remote segments that have a record with the key."""
    found = []
    for number, log in enumerate(sorted(tiered.remote.rglob("*.log"))):
        alone = tmp_path / f"alone{number}"
        alone.mkdir()
        shutil.copyfile(log, alone / f"{0:020d}.log")
        if any(each.key == KEY.encode() for each in all_records(alone)):
            found.append(str(log))
    assert found
    return found


def test_a_preview_names_those_of_the_selected_topics(
    tiered: TieredFixture, holding: list[str]
) -> None:
    words: list[str | Path] = ["--dry-run", "--topic=orders", f"--key={KEY}"]
    rows = of_type(rows_of("erase", *words, "--remote", tiered.remote, tiered.leader), "copy")

    of_orders = [each for each in holding if "/orders-" in each]
    assert 0 < len(of_orders) < len(holding)
    found = [f"{each['log_dir']}/{each['name']}" for each in rows if each["kind"] == "remote"]
    assert sorted(found) == of_orders


def test_records_that_cannot_be_decoded_are_counted(tiered: TieredFixture) -> None:
    words: list[str | Path] = ["--dry-run", "--topic=orders", "--where=value.a=b"]
    outcome = run("erase", *words, "--remote", tiered.remote, tiered.leader)

    assert outcome.exit_status & 4
    assert b"records in remote segments cannot be decoded" in outcome.stdout


def test_the_certificate_names_them_all(
    tiered: TieredFixture, holding: list[str], tmp_path: Path
) -> None:
    root = LogModel().write(tmp_path / "logs").parent
    before = contents_of(tiered.remote)
    options = (f"--key={KEY}", "--remote", tiered.remote)

    finished = run("erase", "--finish", "--certificate", tmp_path / "c.json", *options, root)

    assert finished.exit_status == 4
    assert f"{holding[0]}: 2 records with an erased key or field".encode() in finished.stdout
    assert contents_of(tiered.remote) == before
    certificate = json.loads((tmp_path / "c.json").read_bytes())
    assert problem_of_document("erase-certificate", certificate) is None
    assert sorted(certificate["remote"]["holding"]) == holding
    assert certificate["remote"]["segments"] == len(list(tiered.remote.rglob("*.log")))
    assert holding[0] in str(certificate["not_reached"])

    verified = rows_of("erase", "--verify", tmp_path / "c.json", "--remote", tiered.remote, root)
    remains = of_type(verified, "remains")
    assert sorted(f"{each['log_dir']}/{each['file']}" for each in remains) == holding


def test_nothing_is_left_where_remote_segments_do_not_hold_it(
    tiered: TieredFixture, tmp_path: Path
) -> None:
    root = LogModel().write(tmp_path / "logs").parent
    options = ("--key=nobody-4711", "--remote", tiered.remote)

    finished = run("erase", "--finish", "--certificate", tmp_path / "c.json", *options, root)

    assert finished.exit_status == 0
    certificate = json.loads((tmp_path / "c.json").read_bytes())
    assert certificate["remote"]["holding"] == []
