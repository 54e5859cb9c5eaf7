r"""Java regular expressions for topic names, as Spark's own Kafka source accepts them.

Python's regular expressions differ: they have no ``\p{Alpha}``, ``\Q...\E`` or intersections of
character classes, and some that look the same mean something else. So a pattern is parsed by the
rules of ``java.util.regex.Pattern`` and translated to Python with every character class spelled
out. Topic names are ASCII: classes are short, and Unicode's rules do not matter.

Patterns that cannot be translated are rejected: nothing matches differently than in Java.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections.abc import Callable
from typing import Final, NoReturn

Characters = frozenset[str]

_ALL: Final = frozenset(map(chr, range(128)))


def _ascii_where(is_one: Callable[[str], bool]) -> Characters:
    return frozenset(filter(is_one, _ALL))


_LOWER: Final = frozenset(string.ascii_lowercase)
_UPPER: Final = frozenset(string.ascii_uppercase)
_ALPHA: Final = _LOWER | _UPPER
_DIGIT: Final = frozenset(string.digits)
_WORD: Final = _ALPHA | _DIGIT | {"_"}
_SPACE: Final = frozenset(" \t\n\v\f\r")
_PUNCT: Final = frozenset(string.punctuation)
_GRAPH: Final = _ALPHA | _DIGIT | _PUNCT
_CONTROL: Final = _ascii_where(lambda each: unicodedata.category(each) == "Cc")

_CLASSES: Final = {
    "d": _DIGIT,
    "h": frozenset(" \t"),
    "s": _SPACE,
    "v": frozenset("\n\v\f\r"),
    "w": _WORD,
}
"""By the letter after a backslash; the upper-case letter is the complement."""

_POSIX: Final = {
    "ASCII": _ALL,
    "Alnum": _ALPHA | _DIGIT,
    "Alpha": _ALPHA,
    "Blank": frozenset(" \t"),
    "Cntrl": _CONTROL,
    "Digit": _DIGIT,
    "Graph": _GRAPH,
    "Lower": _LOWER,
    "Print": _GRAPH | {" "},
    "Punct": _PUNCT,
    "Space": _SPACE,
    "Upper": _UPPER,
    "XDigit": frozenset(string.hexdigits),
    "javaAlphabetic": _ALPHA,
    "javaDigit": _DIGIT,
    "javaLetter": _ALPHA,
    "javaLetterOrDigit": _ALPHA | _DIGIT,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "L1": _ALL,
    "all": _ALL,
}
_BINARY: Final = {
    "ALPHABETIC": _ALPHA,
    "DIGIT": _DIGIT,
    "HEX_DIGIT": frozenset(string.hexdigits),
    "LATIN": _ALPHA,
    "LETTER": _ALPHA,
    "LOWERCASE": _LOWER,
    "PUNCTUATION": _ascii_where(lambda each: unicodedata.category(each).startswith("P")),
    "UPPERCASE": _UPPER,
}
"""Properties after ``Is``, in upper or lower case."""

_ESCAPED: Final = {"a": "\a", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ANCHORS: Final = {
    "A": r"\A",
    "B": r"\B",
    "G": r"\A",
    "Z": r"\Z",
    "b": r"\b",
    "z": r"\Z",
}
_GROUPS: Final = ("?:", "?=", "?!", "?>", "?<=", "?<!")
_FLAGS: Final = frozenset("idmsuxU")
_MOST_REPEATS: Final = 100_000


class PatternError(ValueError):
    """A pattern that Java rejects, or that cannot be translated."""


def matches(pattern: str, topic: str) -> bool:
    """Whether the whole name of a topic matches; follows ``Matcher.matches``.

    Raises:
        PatternError: the pattern is invalid or not supported.
    """
    return topic.isascii() and _compiled(pattern).match(topic) is not None


@functools.lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        translated = _Parser(_unquoted(pattern)).parse()
        return re.compile(rf"(?:{translated})\Z", re.ASCII)
    except RecursionError:
        raise PatternError("its groups are nested too deeply") from None
    except (re.error, OverflowError) as problem:
        raise PatternError(f"Python does not support it: {problem}") from problem


def check(pattern: str) -> None:
    """Check a pattern.

    Raises:
        PatternError: it is invalid or not supported.
    """
    _compiled(pattern)


def _unquoted(pattern: str) -> str:
    r"""The pattern with the characters between ``\Q`` and ``\E`` escaped one by one."""
    found: list[str] = []
    rest = pattern
    while rest:
        if rest.startswith("\\Q"):
            quoted, _, rest = rest[2:].partition("\\E")
            found += [f"\\x{{{ord(each):x}}}" for each in quoted]
            continue
        size = 2 if rest[0] == "\\" else 1
        found.append(rest[:size])
        rest = rest[size:]
    return "".join(found)


class _Parser:
    """Translates one pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.ignores_case = False
        self.names = set[str]()

    def parse(self) -> str:
        found = self.alternatives()
        if self.at < len(self.pattern):
            self.refuse("unmatched )")
        return found

    def refuse(self, what: str) -> NoReturn:
        raise PatternError(f"{what}, at character {min(self.at, len(self.pattern)) + 1}")

    def peek(self, size: int = 1) -> str:
        return self.pattern[self.at : self.at + size]

    def next(self) -> str:
        """Take the next character, which must exist."""
        found = self.peek()
        if not found:
            self.refuse("the pattern is incomplete")
        self.at += 1
        return found

    def skip(self, expected: str) -> bool:
        if not self.pattern.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    # Outside of character classes

    def alternatives(self) -> str:
        ignored_case = self.ignores_case
        found = [self.sequence()]
        while self.skip("|"):
            found.append(self.sequence())
        self.ignores_case = ignored_case
        return "|".join(found)

    def sequence(self) -> str:
        found: list[str] = []
        while self.peek() not in ("", "|", ")"):
            element = self.element()
            if element is not None:
                found.append(self.repeated(element))
        return "".join(found)

    def element(self) -> str | None:
        """The next element; None for flags, which cannot be repeated."""
        match self.peek():
            case "*" | "+" | "?" as sign:
                self.refuse(f"{sign} has nothing to repeat")
            case "{":
                return ""
            case "(":
                self.at += 1
                return self.group()
            case "[":
                self.at += 1
                return _one_of(self.bracketed())
            case "^":
                self.at += 1
                return r"\A"
            case "$":
                self.at += 1
                return r"\Z"
            case ".":
                self.at += 1
                return _one_of(_ALL - set("\n\r"))
            case "\\":
                self.at += 1
                return self.escape()
        return _one_of(self.cased(self.next()))

    def repeated(self, element: str) -> str:
        sign = self.peek()
        if sign not in ("*", "+", "?", "{"):
            return element
        if sign == "{":
            counts = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII).match(self.pattern, self.at)
            if counts is None:
                self.refuse("{ does not begin a repetition")
            least, most = int(counts[1]), int(counts[3] or counts[1])
            if most < least or max(least, most) > _MOST_REPEATS:
                self.refuse("the repetition is out of range")
            sign = counts[0]
        self.at += len(sign)
        kind = self.next() if self.peek() in ("?", "+") else ""
        return f"(?:{element}){sign}{kind}"

    def group(self) -> str | None:
        for kind in _GROUPS:
            if self.skip(kind):
                return self.closed(f"({kind}")
        if self.skip("?<"):
            name = re.compile("([a-zA-Z][a-zA-Z0-9]*)>").match(self.pattern, self.at)
            if name is None or name[1] in self.names:
                self.refuse("the name of the group is invalid or repeated")
            self.names.add(name[1])
            self.at = name.end()
        elif self.skip("?"):
            return self.flags()
        # Back references are not supported, so the group needs no number.
        return self.closed("(?:")

    def closed(self, opening: str) -> str:
        found = self.alternatives()
        if not self.skip(")"):
            self.refuse("unclosed group")
        return f"{opening}{found})"

    def flags(self) -> str | None:
        ignored_case = self.ignores_case
        is_on = True
        while True:
            match self.next():
                case "-" if is_on:
                    is_on = False
                case "x":
                    self.refuse("the flag x (comments) is not supported")
                case "i":
                    self.ignores_case = is_on
                case ")":
                    # The flags apply to the end of the enclosing group.
                    return None
                case ":":
                    found = self.closed("(?:")
                    self.ignores_case = ignored_case
                    return found
                case flag if flag not in _FLAGS:
                    self.refuse(f"unknown flag {flag}")

    def escape(self) -> str:
        letter = self.next()
        if letter in "123456789k":
            self.refuse("back references are not supported")
        if letter in "RXN" or (letter == "b" and self.peek(3) == "{g}"):
            self.refuse(f"\\{letter} is not supported")
        if letter in _ANCHORS:
            return _ANCHORS[letter]
        found = self.escaped(letter)
        return _one_of(found if isinstance(found, frozenset) else self.cased(found))

    # Characters

    def cased(self, character: str) -> Characters:
        if not character.isascii():
            self.refuse("topic names have no such character")
        if self.ignores_case:
            return frozenset((character.lower(), character.upper()))
        return frozenset(character)

    def escaped(self, letter: str) -> Characters | str:
        """The meaning of a backslash and ``letter``: one character or a class."""
        if letter.lower() in _CLASSES:
            found = _CLASSES[letter.lower()]
            return found if letter.islower() else _ALL - found
        if letter in "pP":
            found = self.of_property()
            return found if letter == "p" else _ALL - found
        if letter in _ESCAPED:
            return _ESCAPED[letter]
        if letter == "c":
            return chr(ord(self.next()) ^ 64)
        if letter in "0xu":
            return self.numbered(letter)
        if letter.isascii() and letter.isalnum():
            self.at -= 1
            self.refuse(f"Java does not have \\{letter} here")
        return letter

    def numbered(self, letter: str) -> str:
        form = {
            "0": "([0-3][0-7]{2}|[0-7]{1,2})",
            "u": "([0-9a-fA-F]{4})",
            "x": r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}",
        }[letter]
        found = re.compile(form).match(self.pattern, self.at)
        if found is None:
            self.refuse(f"\\{letter} is not followed by a valid number")
        number = int(found[1] or found[2], 8 if letter == "0" else 16)
        self.at = found.end()
        if number > 127:
            self.refuse("topic names have no such character")
        return chr(number)

    def of_property(self) -> Characters:
        name = self.next()
        if name == "{":
            end = self.pattern.find("}", self.at)
            if end <= self.at:
                self.refuse("the name of the property is missing or unclosed")
            name = self.pattern[self.at : end]
            self.at = end + 1
        found = _property(name)
        if found is None:
            self.refuse(f"the property {name} is not supported")
        if self.ignores_case and (found & _ALPHA) in (_LOWER, _UPPER):
            self.refuse(f"versions of Java differ about \\p{{{name}}} when ignoring case")
        return found

    # Character classes

    def bracketed(self) -> Characters:
        """A class, after its opening bracket."""
        is_negated = self.skip("^")
        found = self.members()
        self.at += 1
        return _ALL - found if is_negated else found

    def members(self) -> Characters:
        """The members of a class, up to its closing bracket."""
        found: Characters | None = None
        is_intersection = False
        while True:
            if self.peek() == "]" and found is not None:
                return found
            if self.skip("&&"):
                right = self.right_of_and()
                is_intersection = True
                if found is None:
                    self.refuse("nothing before &&")
                found &= right
                continue
            if is_intersection and self.peek() == "&":
                self.refuse("a single & after && is not supported")
            each = self.bracketed() if self.skip("[") else self.range()
            found = each if found is None else found | each

    def right_of_and(self) -> Characters:
        """The operand after ``&&``; without brackets it extends to the end of the class."""
        found: Characters | None = None
        while self.peek() not in ("]", "&"):
            each = self.bracketed() if self.skip("[") else self.members()
            found = each if found is None else found | each
        if found is None:
            self.refuse("nothing after &&")
        return found

    def range(self) -> Characters:
        first = self.member()
        if isinstance(first, frozenset):
            return first
        if self.peek() != "-" or self.peek(2) in ("-[", "-]"):
            return self.cased(first)
        self.at += 1
        last = self.member()
        if isinstance(last, frozenset) or last < first:
            self.refuse("invalid range of characters")
        found = frozenset(map(chr, range(ord(first), min(127, ord(last)) + 1)))
        return frozenset().union(*map(self.cased, found))

    def member(self) -> Characters | str:
        character = self.next()
        if character != "\\":
            return character
        letter = self.next()
        if letter in "XN":
            self.refuse(f"\\{letter} is not supported")
        return self.escaped(letter)


def _property(name: str) -> Characters | None:
    """The characters with a property of Unicode, POSIX or Java; None for unknown ones."""
    if name in _POSIX:
        return _POSIX[name]
    key, _, value = name.partition("=")
    if value and key.lower() in ("general_category", "gc"):
        name = value
    elif value:
        return None
    elif name.startswith("Is"):
        name = name[2:]
        if name.upper() in _BINARY:
            return _BINARY[name.upper()]
    if name == "LC":
        return _ALPHA
    if not re.fullmatch(
        "[LMNZCPS]|L[ulltmo]|N[dlo]|P[cdseifo]|S[mcko]|Z[slp]|C[cfson]|M[nec]", name
    ):
        return None
    return _ascii_where(lambda each: unicodedata.category(each).startswith(name))


def _one_of(characters: Characters) -> str:
    """A Python character class."""
    if not characters:
        # Matches no topic name, but is one character to Python (for look-behinds).
        return r"[^\x00-\x7f]"
    return "[" + "".join(f"\\x{ord(each):02x}" for each in sorted(characters)) + "]"
