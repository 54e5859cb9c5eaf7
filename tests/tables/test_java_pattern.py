"""Topic patterns match as in Java."""

from __future__ import annotations

import random
import re
from typing import Any, Final

import pytest

from kdump.engine.spark import SparkEngine
from kdump.errors import UsageProblem
from kdump.tables.kafka_log import java_pattern
from kdump.tables.kafka_log.java_pattern import PatternError
from kdump.tables.kafka_log.options import parse_options

TOPICS: Final = ("a", "A", "ab", "aab", "a-b", "a.b", "a_b", "12", "-", "orders-eu.2", "__x", "E")

ATOMS: Final = (
    *"abE12-_.&,]}",
    *(rf"\{each}" for each in ("d", "D", "w", "W", "s", "S", "h", "v", "b", "B", "A", "z", "Z")),
    *(
        "^",
        "$",
        "{2}",
        r"\.",
        r"\x61",
        r"\x{62}",
        r"\u0061",
        r"\0141",
        r"\cA",
        r"\Qa.b\E",
        r"\Qab\E",
    ),
    *(rf"\p{{{each}}}" for each in ("Alpha", "L", "Lu", "IsLl", "IsAlphabetic", "Punct", "Lower")),
    *(rf"\P{{{each}}}" for each in ("Alnum", "gc=Lu", "IsPunctuation", "javaLetter", "LC", "S")),
    *(r"\pL", r"\PN", r"\1", r"\y", r"\E", "{a", "*"),
)
IN_CLASSES: Final = (
    *"abc19-_.^&[]A",
    *("a-z", "A-Z", "0-9", "&&", "&&[^b]", "&&[a-m]", "[b-d]", "[^a]", r"\d", r"\W", r"\p{L}"),
    *(r"\-", r"\Q]\E", r"\Qa-z\E", r"\x41", "z-a", r"\b"),
)
QUANTIFIERS: Final = (
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "*+",
    "++",
    "{2}",
    "{1,2}",
    "{0}",
    "{1,}?",
    "{2,1}",
)
GROUPS: Final = ("(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?i)", "(?i:", "(?-i:")


def any_pattern(dice: random.Random, depth: int = 2) -> str:
    return "|".join(
        "".join(any_element(dice, depth) for _ in range(dice.randint(0, 3)))
        for _ in range(dice.choice([1, 1, 1, 2]))
    )


def any_element(dice: random.Random, depth: int) -> str:
    match dice.choice(("atom", "atom", "class", "group" if depth else "atom")):
        case "atom":
            found = str(dice.choice(ATOMS))
        case "class":
            inside = "".join(dice.choice(IN_CLASSES) for _ in range(dice.randint(1, 4)))
            found = f"[{dice.choice(['', '', '^'])}{inside}]"
        case _:
            found = f"{dice.choice(GROUPS)}{any_pattern(dice, depth - 1)})"
    return found + (dice.choice(QUANTIFIERS) if dice.random() < 0.3 else "")


def java_matches(jvm: Any, pattern: str) -> list[str] | None:
    """Return the topics that Java matches, or None if Java rejects the pattern."""
    try:
        compiled = jvm.java.util.regex.Pattern.compile(pattern)
    except Exception:
        return None
    return [topic for topic in TOPICS if compiled.matcher(topic).matches()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_patterns_match_as_in_java(spark: SparkEngine, seed: int) -> None:
    dice = random.Random(seed)
    matched = 0
    for _ in range(80):
        pattern = any_pattern(dice)
        try:
            ours = [topic for topic in TOPICS if java_pattern.matches(pattern, topic)]
        except PatternError:
            continue
        assert ours == java_matches(spark._session.context._jvm, pattern), pattern
        matched += 1
    assert matched > 20


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\p{Alpha}+", ["a", "A", "ab", "aab", "E"]),
        (r"\Qa.b\E", ["a.b"]),
        ("[a-z&&[^b]]+", ["a"]),
        ("(?i)A(?-i:b)", ["ab"]),
        ("orders-.*", ["orders-eu.2"]),
        ("a++b", ["ab", "aab"]),
        ("", []),
        ("[]a]", ["a"]),
        ("[^[a-z][A-Z]]+", ["12", "-"]),
    ],
)
def test_java_specific_syntax_is_supported(pattern: str, expected: list[str]) -> None:
    assert [topic for topic in TOPICS if java_pattern.matches(pattern, topic)] == expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a)\\1", "back references are not supported, at character 6"),
        ("(?x) a", "the flag x"),
        (r"(?i)\p{Lu}", "versions of Java differ"),
        (r"\p{IsGreek}", "the property IsGreek is not supported"),
        ("(?<=a*)b", "look-behind"),
        ("[a", "the pattern is incomplete"),
        ("a)", "unmatched )"),
        ("*", "nothing to repeat"),
        ("a{99999999999}", "out of range"),
        ("[a-c&&]", "nothing after &&"),
        ("(" * 5000 + ")" * 5000, "nested too deeply"),
    ],
)
def test_an_unsupported_pattern_is_rejected_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(UsageProblem, match=f"option subscribePattern .*{re.escape(reason)}"):
        parse_options({"path": "/", "subscribePattern": pattern})
