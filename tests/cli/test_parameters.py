"""Numbers and times on the command line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.in_process import run_kdump
from builders.json_commands import commands_with
from kdump.cli.options.parameters import TIME, NumberParameter, SizeParameter, parse_integer

LIKE_NUMBERS = st.text("0123456789+-_ .,eEx\u0660\uff11\n\x00", max_size=22)


@pytest.mark.slow
@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_number_is_accepted(number: int) -> None:
    assert parse_integer(str(number)) == number


@given(LIKE_NUMBERS | st.integers().map(str))
def test_other_forms_are_not_numbers(text: str) -> None:
    number = parse_integer(text)
    assert number is None or str(number) == text


@given(LIKE_NUMBERS)
def test_a_time_is_epoch_milliseconds_or_has_dashes(text: str) -> None:
    try:
        TIME.convert(text, None, None)
    except click.BadParameter:
        return
    assert parse_integer(text) is not None or "-" in text


@pytest.mark.parametrize("text", ["-1", "1_0", "\u0661g", "1.5g", " 1", "1\n", "8388608T", "g", ""])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SizeParameter().convert(text, None, None)


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("512 MiB", 512 << 20), ("1g", 1 << 30)])
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert SizeParameter().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["0", "6", "05"])
def test_a_number_outside_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberParameter(least=1, most=5).convert(text, None, None)


@pytest.mark.parametrize("command", commands_with("--now"))
def test_now_is_never_taken_for_seconds(command: str, tmp_path: Path) -> None:
    outcome = run_kdump([*command.split(), "--now", "1764482400"], tmp_path)
    expected = b"before the first release of Kafka: give ISO 8601, or epoch milliseconds (not sec"
    assert (expected in outcome.stderr, outcome.exit_status) == (True, 16)
