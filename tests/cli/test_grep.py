"""``kdump grep``: what is found, and how it is printed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.golden import recorded_runs
from builders.in_process import Outcome, run_kdump, run_on_terminal
from builders.json_answers import objects
from builders.log_directories import write_log_directory, write_partition
from builders.message_sets import message_07, wrapper_07
from builders.programs import PYTHON_PATH
from builders.verified import with_body
from kdump.formats.compression import Codec

ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHON_PATH}

RECORD = re.compile(rb"^(?=\| offset: |baseOffset: |offset: )", re.MULTILINE)


def official_lines(text: bytes) -> Iterator[bytes]:
    """The lines of records in what ``kafka-dump-log --print-data-log`` prints; some have breaks."""
    return (line for line in RECORD.split(text) if line.startswith(b"| offset"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", "legacy"])
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("order", ()),
        (r"survivor 2[0-9]7\b|uniq-1-[0-9]{2}\b", ()),
        ("SHIPMENT (gamma|mu)", ("-i",)),
        ("ключ-[0-9]-ü.í", ()),
        ('"name":"kappa",', ("-F",)),
        ("m[a-z]+ (?:eta|xi).*chi", ()),
    ],
)
def test_the_same_records_are_found_as_in_the_output_of_the_official_tool(
    name: str, pattern: str, options: tuple[str, ...], fixtures: Path
) -> None:
    runs = [run for run in recorded_runs(fixtures, name, "*.log.deep") if not run.died]
    flags = re.IGNORECASE if "-i" in options else re.NOFLAG
    searched = re.compile(re.escape(pattern) if "-F" in options else pattern, flags)
    expected = [
        f"{run.args[-1]}:".encode() + line
        for run in runs
        for line in official_lines(run.stdout)
        if searched.search(line.decode())
    ]

    ours = run_kdump(["grep", *options, pattern, *(run.args[-1] for run in runs)], runs[0].cwd)

    assert ours.stdout == b"".join(expected)
    assert ours.exit_status & 1 == (not expected)


SOUND, NOTHING_MATCHED, DAMAGE_LEFT, OPERATIONAL_ERROR, USAGE = 0, 1, 4, 8, 16
LOG = f"{0:020d}.log"
ORDERS = f"orders-0/{LOG}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a log directory of two partitions: orders-0 with two segments, payments-0 with one."""
    root = write_log_directory(tmp_path / "logs")
    first = [
        record(0, b"order-1", b'{"status": "new"}', [(b"trace", b"t-1")]),
        record(1, b"order-2", b"Stra\xc3\x9fe \xff", [(b"trace", None), (b"note", b"order-1")]),
        record(2, None, b"NEW"),
    ]
    write_partition(
        root / "orders-0",
        {0: batch(first), 3: batch([record(3, b"order-1", None)], codec=Codec.LZ4)},
    )
    write_partition(root / "payments-0", {0: batch([record(0, b"p", b"for order-1")])})
    return root


def grep(root: Path, *words: str | Path) -> Outcome:
    return run_kdump(["grep", *map(str, words)], root)


def offsets(root: Path, *words: str | Path) -> list[tuple[str, int]]:
    outcome = grep(root, *words, "--output", "jsonl", ".")
    return [
        (row["topic"], row["offset"]) for row in objects(outcome.stdout) if row["type"] == "record"
    ]


def test_a_line_has_the_path_of_the_log_and_then_what_dump_segment_prints(root: Path) -> None:
    dumped = run_kdump(["dump-segment", "--print-data-log", ORDERS], root).stdout.splitlines()
    found = grep(root, "-F", '"new"', ".")
    assert found.stdout == ORDERS.encode() + b":" + dumped[3] + b"\n"
    assert found.exit_status == SOUND


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["order-1"], [("orders", 0), ("orders", 3), ("payments", 0)]),
        (["^order-1$"], [("orders", 0), ("orders", 3)]),
        (["--in", "value", "order-1"], [("payments", 0)]),
        (["--in", "headers", "order-1"], [("orders", 1)]),
        (["--in", "headers,key", "^(t-1|p)$"], [("orders", 0), ("payments", 0)]),
        (["-i", "-e", "STRAßE", "-e", "nEw"], [("orders", 0), ("orders", 1), ("orders", 2)]),
        (["-F", "-e", "order-2", "-e", "[a-z]"], [("orders", 1)]),
        (["--key", "order", "--value", "new"], [("orders", 0)]),
        (["--key", "order-2", "--key", "p"], [("orders", 1), ("payments", 0)]),
        (["--header", "trace"], [("orders", 0), ("orders", 1)]),
        (["--header", "trace=1$"], [("orders", 0)]),
        (["--header", "trac"], []),
        (
            ["--header", "note", "-v", "--key", "order", "--to-offset", "2"],
            [("orders", 0), ("payments", 0)],
        ),
        (["-v", "--value", ""], [("orders", 3)]),
        (["-m", "2", ""], [("orders", 0), ("orders", 1)]),
        (["--from-offset", "2", ""], [("orders", 2), ("orders", 3)]),
        (["--to-offset", "1", ""], [("orders", 0), ("payments", 0)]),
        (["--from-time", str(BASE_TIMESTAMP_MS + 3), ""], [("orders", 3)]),
        (["--to-time", str(BASE_TIMESTAMP_MS + 1), ""], [("orders", 0), ("payments", 0)]),
        (["--topic", "pay*", ""], [("payments", 0)]),
        (["e \\C$"], [("orders", 1)]),
    ],
)
def test_the_options_say_which_records_are_found(
    words: list[str], expected: list[tuple[str, int]], root: Path
) -> None:
    assert offsets(root, *words) == expected


def test_bytes_that_are_not_utf_8_are_found_as_a_string(root: Path) -> None:
    assert offsets(root, "-F", b" \xff".decode(errors="surrogateescape")) == [("orders", 1)]


def test_every_file_is_counted_or_only_those_with_a_match_are_named(root: Path) -> None:
    later = f"orders-0/{3:020d}.log"
    counted = grep(root, "-c", "new", ".")
    assert counted.stdout.decode() == f"{ORDERS}:1\n{later}:0\npayments-0/{LOG}:0\n"
    assert counted.exit_status == SOUND
    assert grep(root, "-l", "order-1", "orders-0").stdout.decode() == f"{ORDERS}\n{later}\n"


def test_the_summary_has_the_totals(root: Path) -> None:
    outcome = grep(root, "--output", "json", "order-1", ".")
    assert objects(outcome.stdout)[-1] == {
        "type": "summary",
        "files": 3,
        "files_with_matches": 3,
        "matches": 3,
        "undecoded_records": 0,
    }


@pytest.mark.parametrize("form", ["text", "table", "csv", "json"])
def test_nothing_found_is_status_1_in_every_format(form: str, root: Path) -> None:
    assert grep(root, "--output", form, "nobody", ".").exit_status == NOTHING_MATCHED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["(a", "."], "'(a' is not a regular expression: missing ): (a"),
        (["a(?=b)", "."], "is not a regular expression: invalid perl operator: (?="),
        (["order-1"], "PATTERN and PATH are needed"),
        (["--key", "a", "--in", "key", "."], "--in has no effect without -e or PATTERN"),
        (["--in", "offset", "a", "."], "'offset' is none of key, value, headers"),
        (["-c", "-l", "a", "."], "--count and --files-with-matches are mutually exclusive"),
        (["a\udcff", "."], "is not UTF-8: find it with -F and without -i"),
        (["-Fi", "a\udcff", "."], "is not UTF-8: find it with -F and without -i"),
    ],
)
def test_what_cannot_be_searched_for_is_a_usage_error(
    words: list[str], said: str, root: Path
) -> None:
    outcome = grep(root, *words)
    assert said in outcome.stderr.decode()
    assert (outcome.exit_status, outcome.stdout) == (USAGE, b"")


def test_a_pattern_in_the_place_of_a_path_is_explained(root: Path) -> None:
    outcome = grep(root, "order-1", "--header", "trace", ".")
    assert "order-1: No such file or directory (--header makes" in outcome.stderr.decode()
    assert outcome.exit_status == OPERATIONAL_ERROR


def test_what_can_be_read_is_searched_beside_what_cannot(root: Path) -> None:
    os.mkfifo(root / "fifo.log")
    (root / "payments-0" / LOG).unlink()
    (root / "payments-0" / LOG).symlink_to("/nowhere")
    (root / "other").mkdir()
    outcome = grep(root, "new", "fifo.log", "other", "missing", "orders-0", "payments-0")
    assert outcome.stdout.count(b"\n") == 1
    assert outcome.exit_status == OPERATIONAL_ERROR
    said = outcome.stderr.decode()
    assert "fifo.log: not a segment's log or a directory" in said
    assert "missing: No such file or directory" in said


def test_damage_is_reported_with_its_bytes_and_the_rest_is_searched(root: Path) -> None:
    path = f"payments-0/{LOG}"
    good = (root / path).read_bytes()
    damaged = bytearray(good)
    damaged[-3] ^= 1
    log = damaged + batch([record(8, b"after")]) + good[:70]
    (root / path).write_bytes(log)
    outcome = grep(root, "after", "payments-0")
    assert outcome.stdout.count(b"\n") == 1
    said = outcome.stderr.decode().splitlines()
    assert said[0] == f"kdump: {path}: bytes 0 to {len(good)}: its checksum is wrong"
    assert said[1].startswith(f"kdump: {path}: bytes {len(log) - 70} to {len(log)}: batch reaches")
    assert outcome.exit_status == DAMAGE_LEFT
    assert grep(root, "nobody", "payments-0").exit_status == DAMAGE_LEFT | NOTHING_MATCHED


def test_of_many_damaged_batches_some_are_reported_and_the_others_counted(root: Path) -> None:
    log = b"".join(bytes(with_body(each, b"no records")) for each in batches(30))
    (root / ORDERS).write_bytes(log)
    said = grep(root, "", "orders-0").stderr.decode().splitlines()
    assert len(said) == 21
    assert said[-1] == f"kdump: {ORDERS}: 10 more problems like these"


def test_a_record_over_the_limit_is_reported_as_not_decoded(root: Path) -> None:
    large = record(0, None, bytes(40 << 20) + b"end")
    (root / ORDERS).write_bytes(batch([large], codec=Codec.ZSTD))
    outcome = grep(root, "-c", "end", ORDERS)
    assert "not decoded: a record is over the limit" in outcome.stderr.decode()
    assert outcome.exit_status == OPERATIONAL_ERROR | NOTHING_MATCHED
    assert grep(root, "-c", "--max-record-bytes", "64m", "end", ORDERS).exit_status == SOUND


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_logs_of_kafka_0_7_are_searched(form: str, tmp_path: Path) -> None:
    partition = tmp_path / "old-0"
    partition.mkdir()
    inner = wrapper_07([message_07(b"b"), message_07(b"\xffneedle")])
    log = message_07(b"needle") + inner + b"\0\0"
    (partition / f"{100:020d}.kafka").write_bytes(log)
    outcome = grep(tmp_path, "--output", form, "needle", "old-0")
    if form == "jsonl":
        rows = [row for row in objects(outcome.stdout) if row["type"] == "record"]
        assert [row["offset"] for row in rows] == [100, 100 + len(message_07(b"needle"))]
    else:
        assert outcome.stdout.count(b"payload: ") == 2
    assert outcome.exit_status == DAMAGE_LEFT


def test_the_bytes_of_a_path_stay_as_they_are_and_those_of_a_value_are_replaced(
    root: Path,
) -> None:
    odd = os.fsdecode(b"odd\xff-0")
    (root / "payments-0").rename(root / odd)
    (root / odd / LOG).write_bytes(batch([record(n, None, b"%d \xff" % n) for n in range(2)]))
    lines = grep(root, "-m", "2", "", odd).stdout.splitlines()
    assert [line.partition(b":")[0] for line in lines] == [b"odd\xff-0/" + LOG.encode()] * 2
    assert [line.rpartition(b": ")[2].decode() for line in lines] == ["0 \ufffd", "1 \ufffd"]


def test_directories_that_are_not_searched_are_named(root: Path) -> None:
    (root / "payments-0").rename(root / "payments 0")
    outcome = grep(root, "order-1", ".")
    assert outcome.stderr == b"kdump: payments 0: not a partition name: not searched\n"
    assert outcome.exit_status == SOUND


@pytest.mark.parametrize("form", ["text", "table"])
def test_control_characters_are_escaped_on_a_terminal(form: str, root: Path) -> None:
    log = batch([record(0, b"\x1b[2J", b"a\nb \xe2\x80\xae")])
    (root / "payments-0" / LOG).write_bytes(log)
    lines = run_on_terminal(["grep", "--output", form, "a", "payments-0"], root, 200)
    (line,) = [each for each in lines if "2J" in each]
    assert "\\x1b[2J" in line
    assert "a\\nb \\u202e" in line


def test_a_closed_pipe_ends_the_search_without_a_word(root: Path) -> None:
    log = b"".join(batches(4000, 20))
    (root / "payments-0" / LOG).write_bytes(log)
    kdump = [sys.executable, "-m", "kdump", "grep", "", "payments-0"]
    with subprocess.Popen(
        kdump, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
@pytest.mark.slow
def test_the_records_found_are_those_that_a_consumer_got(isolation: str, fixtures: Path) -> None:
    """Compare with what the official consumer read of the same partitions."""
    expected = {}
    for path in (fixtures / "out" / "expected").glob(f"*.{isolation}.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        name = path.name.removesuffix(f".{isolation}.jsonl")
        expected[name] = [row["offset"] for row in rows if "offset" in row]
    directories = [str(fixtures / "out" / "clean" / each) for each in ("d1", "d2")]
    words = ["-v", "-F", "in no record", "--isolation-level", f"read_{isolation}"]
    found: dict[str, list[int]] = {name: [] for name in expected}
    starts = start_offsets(directories)
    for row in objects(grep(fixtures, *words, "--output", "jsonl", *directories).stdout):
        name = Path(row.get("path", "/")).parent.name
        if row["type"] == "record" and name in found and row["offset"] >= starts.get(name, 0):
            found[name].append(row["offset"])
    assert found == expected


def start_offsets(directories: list[str]) -> dict[str, int]:
    """The log start offset of each partition: consumers get nothing before it."""
    outcome = run_kdump(["ls", "--output", "jsonl", *directories], Path.cwd())
    return {
        row["directory"]: row["log_start_offset"] or 0
        for row in objects(outcome.stdout)
        if row["type"] == "partition"
    }


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_broker_of_a_cluster_has_the_records_that_consumers_got(
    isolation: str, fixtures: Path
) -> None:
    state = fixtures / "states" / "clean"
    expected, offsets_of = dict[str, str](), dict[str, range]()
    for topic, each in json.loads((state / "manifest.json").read_text())["topics"].items():
        for number, partition in each["partitions"].items():
            # The replicas of some topics were made to part after the manifest was written.
            if partition["leader"] == 3 and isolation in partition and "div-" not in topic:
                name = f"{topic}-{number}"
                expected[name] = partition[isolation].get("sha256", hashlib.sha256().hexdigest())
                earliest, latest = (partition[end]["offset"] for end in ("earliest", "latest"))
                offsets_of[name] = range(earliest, latest)
    found = {name: hashlib.sha256() for name in expected}
    words = ["-v", "-F", "in no record", "--isolation-level", isolation, "--output", "jsonl"]
    for row in objects(grep(state, *words, "b3-d1").stdout):
        name = Path(row.get("path", "")).parent.name
        if row["type"] == "record" and row["offset"] in offsets_of.get(name, ()):
            line = (row["offset"], *(in_base64(row, part) for part in PARTS), row["timestamp_ms"])
            found[name].update("\t".join(map(str, line)).encode() + b"\n")
    assert {name: each.hexdigest() for name, each in found.items()} == expected
    assert len(expected) > 30


PARTS = ("key", "value")


def in_base64(row: dict[str, Any], part: str) -> str:
    content = row[part]
    if content is None:
        return "-"
    return content if row[f"{part}_encoding"] == "base64" else b64encode(content.encode()).decode()
