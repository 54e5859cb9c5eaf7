"""Each invariant can be violated so that its code appears, and no other above info."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.verified import (
    LogModel,
    findings_in,
    summary_of,
)
from builders.violations import CASES, OF_TRANSACTIONS, Case
from kdump.check import batches
from kdump.check.findings import Finding, Severity
from kdump.check.invariants import INVARIANTS
from kdump.check.part import Level

ELSEWHERE = {
    "metadata-misplaced",
    "log-dirs-mismatch",
    "voters-mismatch",
    "batch-not-decoded",
    "load-loss",
    "meta-properties-missing",
    "meta-properties-mismatch",
    "cleaner-line-misplaced",
    "directory-id-twice",
    "directory-id-unknown",
    "directory-of-other-node",
    "partition-twice",
    "directory-future-alone",
    "stray-assigned",
    "partition-missing",
    "log-replaced",
    "file-permissions",
    "partition-metadata-mismatch",
    "topic-config-refused",
    "upgrade-topic-config",
    "partition-metadata-other-topic",
    "partition-not-assigned",
    *(code for code in INVARIANTS if code.startswith("remote-")),
}
"""Codes that take several directories, a cluster or another user: see test_directory, for those of
a node's identity test_identity, for those of tiered storage test_verify_remote, and for what no
check finds at its level test_verify."""


@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}: {case.name}" for case in CASES])
def test_only_the_violated_invariant_is_found(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "logs")
    found = findings_in(tmp_path / "logs")
    assert case.code in {each.code for each in found}
    loud = {each.code for each in found if each.severity > Severity.INFO}
    assert loud - {case.code} == case.also


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}: {case.name}" for case in CASES])
def test_a_violated_invariant_is_found_at_its_level_and_above(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "logs")
    seen = [
        case.code in {each.code for each in findings_in(tmp_path / "logs", level=level)}
        for level in Level
    ]
    assert seen == [level >= case.level for level in Level]


@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}: {case.name}" for case in CASES])
def test_the_preview_of_a_recovery_says_what_keeps_a_broker_from_starting(
    case: Case, tmp_path: Path
) -> None:
    root = tmp_path / "logs"
    case.write(root)
    refused = {
        (each.code, each.place.path) for each in findings_in(root) if "not start" in each.what
    }
    said = objects(run_kdump(["recover", "--dry-run", "--output", "jsonl", str(root)], root).stdout)
    assert refused <= {(row["code"], row["path"]) for row in said if row["type"] == "finding"}


PLAIN_CASES = [
    case for case in CASES if case.level < Level.DEEP and case.code not in OF_TRANSACTIONS
]
OTHERS = ("a", "b", "y", "z")


def findings_of(case: Case, root: Path, model: LogModel) -> list[Finding]:
    """Return what a check without records finds about a changed partition and its directory."""
    case.write(root, model)
    found = findings_in(root, level=case.level)
    others = tuple(str(root / f"{name}-0") for name in OTHERS)
    return [each for each in found if not each.place.path.startswith(others)]


@pytest.mark.parametrize(
    "case", PLAIN_CASES, ids=[f"{case.code}: {case.name}" for case in PLAIN_CASES]
)
def test_an_invariant_holds_for_segments_of_every_size(case: Case, tmp_path: Path) -> None:
    """A check that only some segments reach finds its code in some of these only."""
    small = findings_of(case, tmp_path / "small" / "logs", LogModel.plain())
    assert case.code in {each.code for each in small}
    among = findings_of(case, tmp_path / "among" / "logs", LogModel.plain(others=OTHERS))
    assert [each.code for each in among] == [each.code for each in small]
    large = findings_of(case, tmp_path / "large" / "logs", LogModel.plain(value=bytes(6000)))
    assert sorted(each.code for each in large) == sorted(each.code for each in small)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "LARGEST_SMALL_LOG_BYTES", -1)
        windows = findings_in(tmp_path / "small" / "logs", level=case.level)
    assert windows == small


def test_every_code_has_a_violation() -> None:
    assert {case.code for case in CASES} | ELSEWHERE == set(INVARIANTS)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_valid_directory_has_no_findings(level: Level, is_clean: bool, tmp_path: Path) -> None:
    LogModel(is_clean=is_clean).write(tmp_path / "logs")
    codes = {each.code for each in findings_in(tmp_path / "logs", level=level)}
    assert codes == {"checkpoint-empty"}


@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}: {case.name}" for case in CASES])
def test_every_byte_is_accounted_for(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "logs")
    account = summary_of(tmp_path / "logs").account
    files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert account.total_bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("state", ["delete", "stray"])
def test_a_wrong_name_in_a_directory_that_is_not_loaded_hides_nothing(
    state: str, tmp_path: Path
) -> None:
    partition = LogModel().write(tmp_path / "logs")
    (partition / "7.log").write_bytes(b"")
    partition.rename(f"{partition}.{7:032x}-{state}")
    codes = {each.code for each in findings_in(tmp_path / "logs") if each.severity.is_damage}
    assert "log-misnamed" not in codes
