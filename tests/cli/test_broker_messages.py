"""``kdump explain MESSAGE`` names the findings behind a message of a broker or client."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from builders.compactable_directories import plain_directory
from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects
from builders.json_schemas import problems_of_objects
from builders.kafka_jars import jars_classpath
from kdump.check.broker_messages import ANYTHING, BROKER_MESSAGES, BrokerMessage
from kdump.check.invariants import INVARIANTS
from kdump.errors import ExitStatus

ROOT: Final = Path(__file__).resolve().parents[2]
COMMANDS: Final = sorted(
    {
        command
        for each in BROKER_MESSAGES
        for command in re.findall(r"kdump (?:[^ ;,]+ )+?LOG_DIR(?=\b)", each.advice)
    }
)


def explain(*args: str) -> Outcome:
    return run_kdump(["explain", *args], Path.cwd())


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("Found a corrupted index", "transaction-index-mismatch"),
        ("Invalid cluster.id", "meta-properties-mismatch"),
        ("not in the form of topic-partition", "directory-refused"),
        ("OffsetOutOfRangeException", "log-start-beyond-end"),
        ("org.apache.kafka.common.errors.CorruptRecordException: null", "batch-checksum"),
        ("KafkaStorageException", "file-unreadable"),
        (
            "WARN [LogLoader dir=/d] Corruption found in segment 0, truncating to offset 7 (a.b.C)",
            "torn-tail",
        ),
    ],
)
def test_a_line_or_its_beginning_leads_to_the_findings(typed: str, code: str) -> None:
    outcome = explain(typed)
    assert outcome.exit_status == 0
    assert re.search(rf"Findings: .*\b{code}\b", outcome.stdout.decode())


@pytest.mark.parametrize(
    ("typed", "runbook"),
    [
        ("OffsetOutOfRangeException", "A consumer is stuck at an offset"),
        ("LeaderNotAvailableException", "Which replica should lead?"),
        ("ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)", "The pod crash-loops"),
    ],
)
def test_a_line_or_its_beginning_leads_to_the_runbook(typed: str, runbook: str) -> None:
    assert f"Runbook: {runbook}" in explain(typed).stdout.decode()


def test_programs_get_messages_beside_codes() -> None:
    answer = all_objects(explain("torn-tail", "Duplicate directory ID", "--output", "json").stdout)
    assert list(problems_of_objects("explain", answer)) == []
    assert [each["type"] for each in answer[1:-1]] == ["explanation", "broker_message"]
    assert answer[2]["codes"] == ["directory-id-twice"]


def test_a_message_without_quotes_is_answered_with_the_command() -> None:
    outcome = explain("Found", "a", "corrupted", "index")
    assert outcome.exit_status == ExitStatus.USAGE
    command = b"kdump explain 'Found a corrupted index'\n"
    assert outcome.stderr == b"kdump: put the message in quotes: " + command


def test_a_message_that_nobody_knows_is_a_usage_error() -> None:
    outcome = explain("my disk makes noises")
    assert outcome.exit_status == 16
    assert b"no message of a broker that kdump knows" in outcome.stderr


@pytest.mark.parametrize("message", BROKER_MESSAGES, ids=lambda each: each.text)
def test_a_message_names_findings_and_runbooks_that_exist(message: BrokerMessage) -> None:
    assert set(message.codes) <= INVARIANTS.keys()
    if runbook := re.fullmatch(r"Runbook: (.+?)\.?", message.advice):
        assert f"[{runbook[1].replace('-stray', '`-stray`')}](docs/runbooks/" in (
            ROOT / "README.md"
        ).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_advice_run_as_printed(command: str, tmp_path: Path) -> None:
    plain_directory(tmp_path / "LOG_DIR")
    outcome = run_kdump(shlex.split(command)[1:], tmp_path)
    assert not outcome.exit_status & ExitStatus.USAGE, outcome.stderr


def test_the_page_has_all_messages() -> None:
    page = (ROOT / "docs" / "broker-messages.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert rows == [_row(each) for each in BROKER_MESSAGES]


def _row(message: BrokerMessage) -> str:
    codes = ", ".join(f"`{code}`" for code in message.codes)
    return f"| {message.text.strip()} | {message.meaning} | {codes} | {message.advice} |"


@pytest.mark.differential
def test_every_message_is_in_kafkas_classes() -> None:
    parts = {part for each in BROKER_MESSAGES for part in each.text.split(ANYTHING)}
    for jar in Path(jars_classpath().removesuffix("*")).glob("kafka*.jar"):
        with ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and parts:
                    data = archive.read(name)
                    parts -= {part for part in parts if part.encode() in data}
    assert parts == set()
