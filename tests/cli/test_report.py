"""``kdump report``: one page, from one pass over the data, in which names are only text."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.message_sets import message_07
from builders.recovery import of_producer
from builders.transaction_states import key_of, log_of, value_of
from builders.verified import NOW_MS, LogModel, file
from kdump.check.part import ByteAccount
from kdump.cli.output.report.island import Strings, encode_island
from kdump.cli.output.report.redaction import redaction
from kdump.cli.output.report.report_verdict import report_verdict
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.jobs.report.collected import CollectedResults
from kdump.jobs.verify.verify import VerifySummary

HOSTILE: Final = "</script><img src=x onerror=alert(1)>\u2028\"'&"


class Parsed(html.parser.HTMLParser):
    """The elements of a page, with their attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style", "h1"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return LogModel().write(tmp_path / "logs").parent


def report(*args: str | Path, out: Path) -> tuple[Outcome, str]:
    words = ["report", "--force", "--out", str(out), "--now", str(NOW_MS), *map(str, args)]
    outcome = run_kdump(words, out.parent)
    return outcome, out.read_text(encoding="utf-8") if out.exists() else ""


def data_of(page: str) -> dict[str, Any]:
    (island,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    found: dict[str, Any] = json.loads(island)
    return found


def column(data: dict[str, Any], table: str, key: str) -> list[Any]:
    """The cells of a column, text as it is shown."""
    columns = data["tables"][table]["columns"]
    (at,) = [number for number, each in enumerate(columns) if each["key"] == key]
    cells = data["tables"][table]["cells"][at]
    if columns[at]["kind"] != "text":
        return list(cells)
    return [None if cell is None else data["strings"][cell] for cell in cells]


def break_a_batch(partition: Path) -> None:
    log = file(partition, 0, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)


def test_the_verdict_on_a_sound_directory_is_on_the_page_and_on_the_screen(
    log_dir: Path, tmp_path: Path
) -> None:
    outcome, page = report(log_dir, out=tmp_path / "r.html")
    assert outcome.exit_status == 0
    assert "No damage found: 1 partition checked" in Parsed(page).texts["h1"][0]
    assert b"No damage found: 1 partition checked" in outcome.stdout
    assert "<title>kdump report: no damage</title>" in page
    assert '<span class="word">no damage</span>' in page


def test_the_verdict_marks_thousands_as_the_tiles_do() -> None:
    results = CollectedResults()
    results.summary(
        VerifySummary(
            partitions=10_000,
            segments=0,
            batches=0,
            records=0,
            not_decoded=0,
            account=ByteAccount(),
            findings={},
            seconds=0.0,
            is_unreadable=False,
        )
    )
    sentence = report_verdict(results, ()).sentence
    assert sentence == "No damage found: 10,000 partitions checked, byte by byte."


def test_damage_is_named_with_what_to_do_and_has_a_map(log_dir: Path, tmp_path: Path) -> None:
    break_a_batch(log_dir / "orders-0")
    outcome, page = report(log_dir, out=tmp_path / "r.html")
    assert outcome.exit_status == 4
    assert Parsed(page).texts["h1"][0].startswith("Damage in 1 of 1 partition")
    assert "kdump recover --policy salvage" in page
    assert "Broker: " in page
    (shown,) = data_of(page)["pictures"]["maps"]["maps"]
    (segment,) = shown["segments"]
    size = file(log_dir / "orders-0", 0, FileKind.LOG).stat().st_size
    assert [run[0] for run in segment["runs"]] == [2, 0]
    assert [segment["runs"][0][1], segment["runs"][-1][2]] == [0, size]


def test_a_file_that_cannot_be_read_may_take_only_the_directory_offline(
    log_dir: Path, tmp_path: Path
) -> None:
    (log_dir / "orders-0" / names.PARTITION_METADATA).write_text("rubbish")
    _, page = report(log_dir, out=tmp_path / "r.html")
    (verdict,) = Parsed(page).texts["h1"]
    assert verdict.endswith(": a broker would take the log directory offline, or refuse to start.")


def test_a_log_that_would_be_rebuilt_and_then_renamed_is_not_served(
    log_dir: Path, tmp_path: Path
) -> None:
    file(log_dir / "orders-0", 0, FileKind.OFFSET_INDEX).unlink()
    (log_dir / "orders-0" / names.PARTITION_METADATA).unlink()
    _, page = report(log_dir, out=tmp_path / "r.html")
    (verdict,) = Parsed(page).texts["h1"]
    assert verdict.endswith(": a starting broker would not serve all of them.")


def test_a_broken_index_is_not_said_to_go_unnoticed(log_dir: Path, tmp_path: Path) -> None:
    index = file(log_dir / "orders-0", 0, FileKind.OFFSET_INDEX)
    index.write_bytes(index.read_bytes() + b"0")
    (log_dir / "orders-0" / f"{0:020d}.snapshot.deleted").touch()
    _, page = report(log_dir, out=tmp_path / "r.html")
    (verdict,) = Parsed(page).texts["h1"]
    assert verdict.endswith(
        ": a starting broker would lose no batch, and may not notice all of it."
    )


def test_what_a_broker_of_0_7_would_do_is_not_guessed(tmp_path: Path) -> None:
    messages = b"".join(message_07(b"value") for _ in range(9))
    path = tmp_path / "logs" / "orders-0" / f"{0:020d}.kafka"
    path.parent.mkdir(parents=True)
    path.write_bytes(messages[:-2])
    _, page = report(tmp_path / "logs", out=tmp_path / "r.html")
    (verdict,) = Parsed(page).texts["h1"]
    assert verdict.startswith("Damage in 1 of 1 partition")
    assert verdict.endswith("what a starting broker would do is not known here.")


def test_quarantined_bytes_are_on_the_map_after_a_salvage(log_dir: Path, tmp_path: Path) -> None:
    break_a_batch(log_dir / "orders-0")
    run_kdump(["recover", "--policy", "salvage", "--no-undo", str(log_dir)], tmp_path)
    _, page = report(log_dir, out=tmp_path / "r.html")
    (shown,) = data_of(page)["pictures"]["maps"]["maps"]
    (quarantined,) = [each for each in shown["segments"] if each["quarantined"]]
    (start, end) = quarantined["quarantined"][0]
    assert (start, shown["damaged"]) == (0, 0)
    assert end > start


def test_the_batches_of_the_pictures_add_up_to_those_of_the_verification(
    fixtures: Path, tmp_path: Path
) -> None:
    paths = [fixtures / "out" / "clean" / each for each in ("d1", "d2")]
    _, page = report(*paths, out=tmp_path / "r.html")
    verified = run_kdump(["verify", "--output", "jsonl", *map(str, paths)], tmp_path)
    rows = [json.loads(line) for line in verified.stdout.splitlines()]
    (summary,) = [row for row in rows if row["type"] == "summary"]
    pictures = data_of(page)["pictures"]
    for part in (pictures["batches"]["sizes"], pictures["batches"]["codecs"]):
        assert sum(row[1] for row in part) == summary["batches"]
        assert sum(row[2] for row in part) == summary["records"]
    assert column(data_of(page), "partitions", "directory")


def test_the_policy_allows_exactly_the_style_and_scripts_of_the_page(
    log_dir: Path, tmp_path: Path
) -> None:
    _, page = report(log_dir, out=tmp_path / "r.html")
    parsed = Parsed(page)
    (policy,) = [
        attributes["content"]
        for tag, attributes in parsed.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for text in (*parsed.texts["style"], *parsed.texts["script"][1:]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not [attributes for _, attributes in parsed.elements if "style" in attributes]
    assert not [
        attributes
        for _, attributes in parsed.elements
        for name in attributes
        if name.startswith("on") or name == "src"
    ]


def test_the_vendored_library_is_the_published_one() -> None:
    folder = Path(__file__).resolve().parents[2] / "kdump" / "cli" / "output" / "report"
    digest = hashlib.sha256((folder / "d3.min.js").read_bytes()).hexdigest()
    assert digest in (folder / "d3.md").read_text(encoding="utf-8")
    assert "Copyright 2010-2023 Mike Bostock" in (folder / "d3.LICENSE").read_text(encoding="utf-8")


def test_hostile_text_cannot_end_its_element() -> None:
    strings = Strings()
    strings.number(HOSTILE)
    island = encode_island({}, {}, strings)
    assert island.isascii()
    assert not set("<>&") & set(island)
    assert json.loads(island)["strings"] == [HOSTILE]


def test_a_hostile_path_is_text(tmp_path: Path) -> None:
    root = tmp_path / "<b>%60`x` &lt;\"'"
    LogModel().write(root)
    _, page = report(root, out=tmp_path / "r.html")
    parsed = Parsed(page)
    assert not [tag for tag, _ in parsed.elements if tag in ("b", "img")]
    assert data_of(page)["strings"]


def test_a_redacted_page_has_no_paths(tmp_path: Path) -> None:
    root = tmp_path / "host17.example" / "logs"
    root.parent.mkdir()
    LogModel().write(root)
    break_a_batch(root / "orders-0")
    _, plain = report(root, out=tmp_path / "plain.html")
    _, page = report("--redact", root, out=tmp_path / "r.html")
    assert "host17" in plain
    assert "host17" not in page
    assert "LOG_DIR_1" in page


def test_redaction_leaves_words_alone_that_are_names_of_directories() -> None:
    shown = redaction(is_redacted=True, log_dirs=["data", "logs/here"], files=[])
    assert shown.text("a broker would lose data in 2 logs") == "a broker would lose data in 2 logs"
    assert shown.text("see data/a-0/1.log in logs/here.") == "see LOG_DIR_1/a-0/1.log in LOG_DIR_2."
    assert shown.text("data: cannot be listed") == "LOG_DIR_1: cannot be listed"
    assert shown.text("logs/here.old logs/here-2") == "logs/here.old logs/here-2"
    assert (shown.path("data"), shown.path("data/a-0")) == ("LOG_DIR_1", "LOG_DIR_1/a-0")
    assert shown.path("database/a-0") == "database/a-0"


def test_redaction_finds_quoted_paths() -> None:
    path = "/data/it's here"
    shown = redaction(is_redacted=True, log_dirs=[path], files=["/etc/my broker"])
    command = shlex.join(["kdump", "recover", "--metadata=/etc/my broker", path, f"{path}/a-0"])
    assert shown.command(command) == "kdump recover --metadata=FILE LOG_DIR_1 LOG_DIR_1/a-0"
    assert shown.text(f"run '{command}'").count("LOG_DIR_1") == 2
    assert "here" not in shown.text(f"{path!r} and {path}: {command}")


def test_a_redacted_page_of_a_relative_quoted_directory_has_words_and_no_path(
    tmp_path: Path,
) -> None:
    LogModel().write(tmp_path / "it's" / "data")
    break_a_batch(tmp_path / "it's" / "data" / "orders-0")
    out = tmp_path / "r.html"
    run_kdump(["report", "--redact", "--out", str(out), "data"], tmp_path / "it's")
    data = out.read_text(encoding="utf-8")
    assert "LOG_DIR_1/orders-0" in data
    assert "lose LOG_DIR" not in data
    _, page = report("--redact", tmp_path / "it's" / "data", out=out)
    assert "/it&" not in page
    assert "LOG_DIR_1</code></pre>" in page


def test_redaction_leaves_longer_names_alone() -> None:
    shown = redaction(is_redacted=True, log_dirs=["/data", "/data/2"], files=[])
    assert (
        shown.text("/data/2/a-0 /data/a-0 /data2/a-0") == "LOG_DIR_2/a-0 LOG_DIR_1/a-0 /data2/a-0"
    )
    assert shown.transactional_id("app@host") == shown.transactional_id("app@host")
    assert "host" not in shown.transactional_id("app@host")


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_coordinators_that_cannot_be_read_are_noted_and_in_the_status(
    topic: str, tmp_path: Path
) -> None:
    root = write_log_directory(tmp_path / "d1")
    write_partition(root / "orders-0", {0: of_producer(0, 7, transactional=True)})
    write_partition(root / f"{topic}-0", {0: b""})
    os.mkfifo(root / f"{topic}-0" / f"{9:020d}.log")
    outcome, page = report("--topic", "orders", root, out=tmp_path / "r.html")
    assert outcome.exit_status & 8
    (note,) = re.findall(f'<p class="note">(.*{topic}-0.*FIFO.*)</p>', page)
    assert f"kdump: {note}" in outcome.stderr.decode()


def test_a_transaction_that_no_coordinator_loads_is_noted_and_in_the_status(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    write_partition(root / "orders-0", {0: of_producer(0, 7, transactional=True)})
    log = log_of([(key_of("b"), value_of(state=4, partitions=None))])
    write_partition(root / "__transaction_state-0", {0: log})
    outcome, page = report("--topic", "orders", root, out=tmp_path / "r.html")
    assert outcome.exit_status == 4
    assert "__transaction_state-0: offset 0: null partitions in state CompleteCommit" in page


def test_only_selected_partitions_are_on_the_page(log_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(log_dir / "orders-0", log_dir / "payments-0")
    _, page = report("--topic", "pay*", log_dir, out=tmp_path / "r.html")
    assert column(data_of(page), "partitions", "directory") == ["payments-0"]
    outcome, _ = report("--topic", "none", log_dir, out=tmp_path / "other.html")
    assert outcome.exit_status == 16
    assert not (tmp_path / "other.html").exists()


def test_freed_space_is_not_known_after_an_unclean_shutdown(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()
    _, page = report(log_dir, out=tmp_path / "r.html")
    assert "Not known before the directories are recovered" in page
    assert "Nothing to do: 1 kind of information" in page


def test_groups_and_open_transactions_are_those_of_their_commands(
    fixtures: Path, tmp_path: Path
) -> None:
    paths = [fixtures / "out" / "clean" / each for each in ("d1", "d2")]
    _, page = report(*paths, out=tmp_path / "r.html")
    data = data_of(page)

    def rows(command: str, kind: str) -> list[dict[str, Any]]:
        words = [command, "--output", "jsonl", *map(str, paths)]
        found = [json.loads(line) for line in run_kdump(words, tmp_path).stdout.splitlines()]
        return [row for row in found if row["type"] == kind]

    offsets = [*rows("groups", "offset"), *rows("groups", "share_offset")]
    lags = sorted((row["group"], row["lag"] or 0) for row in offsets)
    shown = zip(column(data, "lag", "group"), column(data, "lag", "lag"), strict=True)
    assert sorted((group, lag or 0) for group, lag in shown) == lags
    pinned = {
        (f"{row['topic']}-{row['partition']}", row["last_stable_offset"])
        for row in rows("txns", "partition")
        if row["pinned_by"] == "transaction"
    }
    stable = column(data, "transactions", "last_stable_offset")
    assert set(zip(column(data, "transactions", "partition"), stable, strict=True)) == pinned
