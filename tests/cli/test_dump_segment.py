"""``kdump dump-segment``: options, formats, damage, exit status.

That its text equals the official tool's is shown by ``tests/test_golden.py`` and
``tests/differential``.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kdump
from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.in_process import Outcome, run_kdump, sent_to_terminal
from builders.index_files import offset_index_bytes
from builders.json_answers import objects
from builders.message_sets import message_07

NAME = f"{0:020d}.log"
SOUND, DAMAGE_LEFT, OPERATIONAL_ERROR, USAGE = 0, 4, 8, 16


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Ten batches of three records, offsets 0 to 29."""
    path = tmp_path / NAME
    path.write_bytes(b"".join(batches(10, 3)))
    return path


def dump(path: Path, *options: str) -> Outcome:
    return run_kdump(["dump-segment", *options, path.name], path.parent)


def rows(path: Path, *options: str) -> list[dict[str, Any]]:
    outcome = dump(path, "--output", "jsonl", *options)
    return objects(outcome.stdout)


def offsets(path: Path, *options: str) -> list[int]:
    return [row["offset"] for row in rows(path, *options) if row["type"] == "record"]


# ---- Files ----


def test_files_may_be_named_with_commas_and_as_arguments(segment: Path) -> None:
    other = segment.with_name(f"{30:020d}.log")
    other.write_bytes(b"")
    outcome = run_kdump(["dump-segment", "--files", NAME, other.name], segment.parent)
    dumped = [line for line in outcome.stdout.splitlines() if line.startswith(b"Dumping ")]
    assert dumped == [f"Dumping {NAME}".encode(), f"Dumping {other.name}".encode()]


def test_no_file_is_a_usage_error(tmp_path: Path) -> None:
    assert run_kdump(["dump-segment"], tmp_path).exit_status == USAGE


def test_after_a_missing_file_the_next_is_read(segment: Path) -> None:
    outcome = run_kdump(["dump-segment", "missing.log", NAME], segment.parent)
    assert outcome.exit_status == OPERATIONAL_ERROR
    assert outcome.stderr == b"kdump: missing.log: No such file or directory\n"
    assert b"baseOffset: 27" in outcome.stdout


def test_a_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    outcome = run_kdump(["dump-segment", "topic-0"], tmp_path)
    assert outcome.exit_status == OPERATIONAL_ERROR
    assert outcome.stderr.count(b"\n") == 1
    assert b"is a directory" in outcome.stderr


@pytest.mark.parametrize("suffix", [".swap", ".cleaned", ".deleted"])
def test_leftover_files_are_read_like_the_originals(segment: Path, suffix: str) -> None:
    plain = dump(segment)
    left = segment.rename(segment.with_name(NAME + suffix))
    outcome = dump(left)
    assert outcome.stdout.splitlines()[1:] == plain.stdout.splitlines()[1:]
    assert outcome.exit_status == SOUND


def test_quarantined_bytes_are_read_like_their_original_file(segment: Path) -> None:
    plain = dump(segment)
    aside = segment.rename(segment.with_name(f"damaged-{NAME}-0-{segment.stat().st_size}"))
    outcome = dump(aside)
    assert outcome.stdout.splitlines()[1:] == plain.stdout.splitlines()[1:]
    assert outcome.exit_status == SOUND


def test_a_checkpoint_is_shown_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n2\na-b 0 17\nc 12 0\n")
    outcome = dump(path)
    assert outcome.stdout.decode().splitlines()[1:] == [
        "topic: a-b partition: 0 offset: 17",
        "topic: c partition: 12 offset: 0",
    ]


def test_a_malformed_checkpoint_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n2\na-b 0 17\n")
    outcome = dump(path)
    assert outcome.exit_status == DAMAGE_LEFT
    assert outcome.stderr.count(b"\n") == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_file_without_properties_is_not_a_meta_properties_file(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(content)
    outcome = dump(path)
    assert outcome.exit_status == DAMAGE_LEFT
    assert b"none of the properties that a broker needs" in outcome.stderr


def test_a_log_of_kafka_0_7_is_read(tmp_path: Path) -> None:
    path = tmp_path / f"{1_000:020d}.kafka"
    path.write_bytes(message_07(b"first") + message_07(b"second"))
    found = [row for row in rows(path) if row["type"] == "record"]
    assert [row["value"] for row in found] == ["first", "second"]
    assert [row["offset"] for row in found] == [1_000, 1_000 + len(message_07(b"first"))]


# ---- Selected records ----


def test_a_range_of_offsets(segment: Path) -> None:
    assert offsets(segment, "--from-offset", "7", "--to-offset", "11") == [7, 8, 9, 10]


def test_a_range_of_times(segment: Path) -> None:
    first = f"{BASE_TIMESTAMP_MS + 4}"
    found = offsets(segment, "--from-time", first, "--to-time", "2026-01-01T00:00:00.007Z")
    assert found == [4, 5, 6]


def test_a_limit(segment: Path) -> None:
    assert offsets(segment, "--limit", "5") == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "table"])
def test_a_limit_is_of_all_files_together(segment: Path, form: str) -> None:
    other = segment.with_name(f"{30:020d}.log")
    other.write_bytes(b"".join(batches(1, 3, base_offset=30)))
    old = segment.with_name("00000000000.kafka")
    old.write_bytes(message_07() * 2)
    names = [NAME, other.name, old.name]

    def lines(*limit: str) -> int:
        options = ["--deep-iteration", *limit, "--output", form]
        text = run_kdump(["dump-segment", *options, *names], segment.parent).stdout.decode()
        if form in ("csv", "table"):
            return sum(" record " in line.replace(",", " ") for line in text.splitlines())
        mark = "| offset: " if form == "text" else '"type":"record"'
        return text.count(mark)

    assert lines() == 35
    for limit in (1, 3, 30, 32, 33, 34, 40):
        assert lines("--limit", str(limit)) == min(limit, 35)


def test_a_key(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(batch([record(0, b"a"), record(1, "ключ".encode()), record(2, None)]))
    assert offsets(path, "--key", "ключ") == [1]


def test_text_shows_only_batches_with_a_selected_record(segment: Path) -> None:
    text = dump(segment, "--print-data-log", "--from-offset", "7", "--to-offset", "8").stdout
    assert [line.split()[:3] for line in text.splitlines()[2:]] == [
        [b"baseOffset:", b"6", b"lastOffset:"],
        [b"|", b"offset:", b"7"],
    ]


def test_a_valid_index_is_used(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = segment.stat().st_size // 10
    write_index(segment, [(14, 4 * size), (23, 7 * size)])
    # Bytes before the indexed batch are not read, so their content does not matter.
    data = segment.read_bytes()
    segment.write_bytes(bytes(7 * size) + data[7 * size :])
    assert offsets(segment, "--from-offset", "25") == [25, 26, 27, 28, 29]


@pytest.mark.parametrize("entries", [[(23, 5)], [(22, 7)], [(23, 7), (14, 4)], [(23, 10**6)]])
def test_a_damaged_index_is_not_used(segment: Path, entries: list[tuple[int, int]]) -> None:
    size = segment.stat().st_size // 10
    write_index(segment, [(offset, place * size) for offset, place in entries])
    assert offsets(segment, "--from-offset", "25") == [25, 26, 27, 28, 29]


def write_index(segment: Path, entries: list[tuple[int, int]]) -> None:
    segment.with_suffix(".index").write_bytes(offset_index_bytes(entries))


@pytest.mark.parametrize("option", ["--from-time", "--to-time"])
def test_an_invalid_time_is_a_usage_error(segment: Path, option: str) -> None:
    assert dump(segment, option, "yesterday").exit_status == USAGE


# ---- Keys and values ----


@pytest.mark.parametrize(
    ("decoder", "shown"),
    [
        ("org.apache.kafka.tools.api.IntegerDecoder", "1094795585"),
        ("org.apache.kafka.tools.api.LongDecoder", "4702111234474983745"),
        ("org.apache.kafka.tools.api.DefaultDecoder", "4141414141414141"),
        ("org.apache.kafka.tools.api.StringDecoder", "AAAAAAAA"),
        ("binascii:hexlify", "b'4141414141414141'"),
    ],
)
def test_a_value_decoder_by_name(tmp_path: Path, decoder: str, shown: str) -> None:
    path = tmp_path / NAME
    path.write_bytes(batch([record(0, b"k", b"A" * 8)]))
    outcome = dump(path, "--value-decoder-class", decoder)
    assert outcome.stdout.decode().endswith(f" key: k payload: {shown}\n")


def test_an_unknown_decoder_is_a_usage_error(segment: Path) -> None:
    for decoder in ("com.example.Decoder", "binascii:nothing", "no.such.module:function"):
        outcome = dump(segment, "--key-decoder-class", decoder)
        assert outcome.exit_status == USAGE
        assert outcome.stderr.count(b"\n") == 1


def test_a_decoder_that_fails_is_damage_of_only_that_record(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(batch([record(0, b"k", b"zz"), record(1, b"k", b"6b")]))
    outcome = dump(path, "--value-decoder-class", "binascii:unhexlify")
    assert outcome.stdout.decode().endswith("payload: b'k'\n")
    assert outcome.exit_status == DAMAGE_LEFT


def own_decoder(folder: Path, code: str) -> str:
    """A decoder in a file, as an option names it."""
    path = folder / "own.py"
    path.write_text(code)
    return f"{path}:decode"


@pytest.mark.parametrize(
    "code",
    [
        "def decode(:",
        "raise KeyError('no')",
        "import sys; sys.exit(0)",
        "class Odd(Exception):\n def __str__(self): raise ValueError\nraise Odd",
        "raise ValueError('two\\nlines \\ud800')",
        "def __getattr__(name): raise RuntimeError('no')",
        "decode = 1",
        "\0",
        "",
    ],
)
def test_a_decoder_that_cannot_be_loaded_is_a_usage_error(
    tmp_path: Path, segment: Path, code: str
) -> None:
    outcome = dump(segment, "--value-decoder-class", own_decoder(tmp_path, code))
    assert outcome.exit_status == USAGE
    assert b"own.py:decode" in outcome.stderr
    assert outcome.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", [":x", ".:x", "..a:x", "a..b:x", "gone.py:x", ":", "binascii:"])
def test_a_decoder_with_a_malformed_name_is_a_usage_error(segment: Path, name: str) -> None:
    outcome = dump(segment, "--value-decoder-class", name)
    assert outcome.exit_status == USAGE
    assert outcome.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return '\\ud800'", "lone surrogate '\\ud800'"),
        ("return Odd()", "failed: ZeroDivisionError: division by zero"),
        ("raise Odd()", "failed: Odd"),
        ("raise SystemExit(1)", "failed: SystemExit 1"),
        ("return decode(data)", "failed: RecursionError"),
    ],
)
@pytest.mark.parametrize(
    ("log", "output"),
    # Rows of Kafka 0.7 are not decoded.
    [("batch", "text"), ("batch", "jsonl"), ("batch", "table"), ("kafka 0.7", "text")],
)
def test_a_value_that_cannot_be_printed_is_a_problem_of_its_record(
    tmp_path: Path, body: str, problem: str, output: str, log: str
) -> None:
    decoder = own_decoder(
        tmp_path,
        "class Odd(Exception):\n def __str__(self): return str(1 / 0)\n"
        f"def decode(data):\n if data == b'good': return 'fine'\n {body}\n",
    )
    if log == "batch":
        path = tmp_path / NAME
        path.write_bytes(batch([record(0, b"k", b"bad"), record(1, b"k", b"good")]))
    else:
        path = tmp_path / f"{0:020d}.kafka"
        path.write_bytes(message_07(b"bad") + message_07(b"good"))
    outcome = dump(path, "--output", output, "--value-decoder-class", decoder)
    assert outcome.exit_status == DAMAGE_LEFT
    assert problem in outcome.stderr.decode()
    assert b"fine" in outcome.stdout


def test_a_decoder_may_have_dataclasses(tmp_path: Path, segment: Path) -> None:
    code = (
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Order:\n  key: bytes\n\ndecode = Order\n"
    )
    outcome = dump(segment, "--value-decoder-class", own_decoder(tmp_path, code))
    assert b"Order(key=b'" in outcome.stdout


@pytest.mark.slow
def test_decoders_of_the_current_directory_are_named_by_a_path(
    tmp_path: Path, segment: Path
) -> None:
    (tmp_path / "mine.py").write_text("def decode(data): return 'decoded'")
    for name, exit_status in (("mine:decode", USAGE), ("./mine.py:decode", SOUND)):
        done = subprocess.run(
            [sys.executable, "-m", "kdump", "dump-segment", segment, "--value-decoder-class", name],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{Path(kdump.__file__).parents[1]}:"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == exit_status, done.stderr
        assert (b"decoded" in done.stdout) == (exit_status == SOUND)


def test_bytes_that_are_not_text_are_base64_and_marked(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(batch([record(0, b"\xff", None, [(b"h", b"\xfe"), (b"n", None)])]))
    (row,) = (row for row in rows(path) if row["type"] == "record")
    assert (row["key"], row["key_encoding"]) == ("/w==", "base64")
    assert (row["value"], row["value_encoding"]) == (None, None)
    first, second = row["headers"]
    assert (first["key"], first["value"], first["value_encoding"]) == ("h", "/g==", "base64")
    assert second["value"] is None


# ---- Output formats ----


def test_json_is_one_array_of_what_jsonl_has(segment: Path) -> None:
    whole = objects(dump(segment, "--output", "json").stdout)
    assert whole == rows(segment)


def test_csv_has_a_header_and_a_line_for_each_row(segment: Path) -> None:
    text = dump(segment, "--output", "csv").stdout.decode()
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["type"] for row in found].count("record") == 30
    assert [row["offset"] for row in found if row["type"] == "record"][-1] == "29"


def test_a_table_has_no_colour_in_a_pipe(segment: Path) -> None:
    outcome = dump(segment, "--output", "table", "--limit", "2")
    assert b"\x1b" not in outcome.stdout
    assert b"0 to 2" in outcome.stdout


def test_every_field_of_a_row_has_a_column(segment: Path) -> None:
    head = dump(segment, "--output", "csv").stdout.decode().splitlines()[0].split(",")
    assert {name for row in rows(segment) for name in row} <= set(head)


# ---- Damage ----


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_torn_tail_exits_4_and_the_rest_is_printed(segment: Path, output: str) -> None:
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 1)
    outcome = dump(segment, "--output", output)
    assert outcome.exit_status == DAMAGE_LEFT
    assert b"24" in outcome.stdout


def test_a_wrong_checksum_exits_4(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    outcome = dump(segment)
    assert outcome.stdout.count(b"isvalid: false") == 1
    assert outcome.exit_status == DAMAGE_LEFT


def test_space_that_was_never_written_is_no_damage(segment: Path) -> None:
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(bytes(1_000))
    for options in ((), ("--print-data-log",), ("--follow-bad",), ("--output", "jsonl")):
        outcome = dump(segment, *options)
        said = f"{NAME}: byte {size}: 1000 zero bytes to the end of the file: never written\n"
        assert (outcome.stderr.decode(), outcome.exit_status) == (said, 0)


def test_zeroes_before_another_segment_are_reported_with_expected_and_found(
    segment: Path,
) -> None:
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(bytes(1_000))
    segment.with_name(f"{10**6:020d}.log").touch()
    outcome = dump(segment)
    line = outcome.stderr.decode()
    assert line.startswith(f"{NAME}: byte {size}: ")
    assert "expected" in line
    assert "found" in line
    assert line.count("\n") == 1
    assert outcome.exit_status == DAMAGE_LEFT


def test_follow_bad_continues_after_the_damage(segment: Path) -> None:
    size = segment.stat().st_size // 10
    data = segment.read_bytes()
    segment.write_bytes(data[: 3 * size] + bytes(size) + data[4 * size :])
    assert offsets(segment) == list(range(9))
    kept = [*range(9), *range(12, 30)]
    assert offsets(segment, "--follow-bad") == kept
    outcome = dump(segment, "--follow-bad")
    assert f"{size} bytes skipped".encode() in outcome.stderr
    assert outcome.exit_status == DAMAGE_LEFT


def test_a_file_full_of_damage_is_not_reported_batch_by_batch(tmp_path: Path) -> None:
    parts = batches(100, 1)
    path = tmp_path / NAME
    path.write_bytes(b"".join(part[:57] + (9).to_bytes(4) + part[61:] for part in parts))
    outcome = dump(path, "--deep-iteration")
    assert len(outcome.stderr.splitlines()) == 21
    assert b"80 more problems" in outcome.stderr


def test_a_read_error_names_the_file_and_the_byte(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("kdump.storage.local_disk.os.preadv", failing)
    outcome = dump(segment)
    assert outcome.exit_status == OPERATIONAL_ERROR
    assert b"Input/output error (reading at byte 0)" in outcome.stderr


def test_nothing_is_written(segment: Path) -> None:
    segment.with_suffix(".index").write_bytes(bytes(13))
    segment.with_suffix(".timeindex").write_bytes(bytes(13))
    before = state(segment.parent)
    run_kdump(["dump-segment", *(path.name for path in segment.parent.iterdir())], segment.parent)
    assert state(segment.parent) == before


def state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_bytes())
        for path in directory.iterdir()
    }


# ---- Pipes and terminals ----


@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(batches(2_000, 20)))
    command = [sys.executable, "-m", "kdump", "dump-segment", "--print-data-log", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 128 + signal.SIGPIPE


@pytest.fixture
def on_a_terminal(tmp_path: Path) -> Any:
    """Runs kdump with a terminal as its standard output, and gives what the terminal got."""

    def run(*args: str) -> bytes:
        command = [sys.executable, "-m", "kdump", *args]
        environment = {**os.environ, "TERM": "xterm"}
        return sent_to_terminal(
            lambda device: subprocess.run(
                command, stdout=device, cwd=tmp_path, env=environment, check=False
            )
        )

    return run


@pytest.mark.slow
def test_control_characters_are_escaped_on_a_terminal(tmp_path: Path, on_a_terminal: Any) -> None:
    (tmp_path / NAME).write_bytes(batch([record(0, b"\x1b[2J", b"line\nline")]))
    shown = on_a_terminal("dump-segment", "--print-data-log", NAME)
    assert b"\x1b" not in shown
    assert rb"key: \x1b[2J payload: line\nline" in shown


def test_control_characters_are_written_to_a_pipe_unchanged(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(batch([record(0, b"\x1b[2J", b"line\nline")]))
    assert dump(path, "--print-data-log").stdout.endswith(b"key: \x1b[2J payload: line\nline\n")
