"""Paths with patterns in them, as Spark's own file sources take them: ``/data/*/orders-?``.

The patterns are Hadoop's (``FileSystem.globStatus``): ``*``, ``?``, ``[a-c]``, ``[^a-c]`` and
``{one,other}``, each within one name. A backslash takes the next character as it is. In a URI a
question mark begins its options, and is no pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kdump.errors import UsageProblem
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState
from kdump.log.directory import directory_kind, log_directories_below
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location
from kdump.storage.place_names import is_store_uri, split_options
from kdump.storage.places import parse_location

LOG_KINDS: Final = (FileKind.LOG, FileKind.LOG_0_7)
_ROOT: Final = re.compile(r"(?:\w+://[^/]+)?/+|\w+://[^/]+$")
_STATES: Final = tuple(state.value for state in PartitionState if state.value)
"""The suffixes of deleted, moving and stray partitions."""


def paths_of(text: str) -> list[str]:
    """The paths that a path with patterns stands for, sorted; without patterns only itself.

    A path that exists is itself, whatever its name. What is matched counts if it is a log
    directory, a directory of such, a partition, or a log; so that ``*`` may also match the files
    beside partitions. Deleted, moving and stray partitions only match a pattern that ends like
    their names.

    Raises:
        UsageProblem: a path with patterns matches nothing, or nothing of Kafka, or a pattern is
            wrong.
        KdumpError: it is in an archive that cannot be unpacked.
        OSError: a directory cannot be listed.
    """
    path, options = split_options(text)
    magic = re.compile(r"[*\[{]" if is_store_uri(text) else r"[*?\[{]")
    if not magic.search(path) or parse_location(text).kind() is not None:
        return [text]
    matched = list(_matched(path, options, magic))
    if not matched:
        raise UsageProblem(f"Path does not exist: {path}")
    found = [each for each in matched if _is_of_kafka(parse_location(each + options))]
    if not found:
        raise UsageProblem(f"{path} matches neither a Kafka log directory nor a partition")
    return [each + options for each in found]


def _matched(path: str, options: str, magic: re.Pattern[str]) -> Iterator[str]:
    """The paths that match, of any kind."""
    root = _ROOT.match(path)
    begun = root[0] if root else ""
    parts = [part for part in path[len(begun) :].split("/") if part]
    found = [begun]
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if magic.search(part):
            pattern = re.compile("|".join(map(_expression, _alternatives(part))), re.DOTALL)
            found = [
                _joined(base, name)
                for base in found
                for name in _names(parse_location((base or ".") + options), part, pattern)
            ]
        else:
            found = [_joined(base, part.replace("\\", "")) for base in found]
            if is_last:
                found = [each for each in found if parse_location(each + options).kind()]
    yield from found


def _joined(base: str, name: str) -> str:
    return base + name if not base or base.endswith("/") else f"{base}/{name}"


def _names(folder: Location, part: str, pattern: re.Pattern[str]) -> list[str]:
    """The names in a directory that match a pattern; none if it is no directory."""
    if folder.kind() is not EntryKind.DIRECTORY:
        return []
    return sorted(
        entry.name
        for entry in folder.entries()
        if pattern.fullmatch(entry.name) and _is_meant(entry, part)
    )


def _is_meant(entry: Entry, part: str) -> bool:
    """Whether a pattern means an entry, and not only matches it."""
    is_set_aside = entry.kind is EntryKind.DIRECTORY and entry.name.endswith(_STATES)
    is_hidden = entry.name.startswith(".") and not part.startswith(".")
    return not is_hidden and (not is_set_aside or part.endswith(_STATES))


def _is_of_kafka(path: Location) -> bool:
    if path.kind() is EntryKind.DIRECTORY:
        kind = directory_kind(path)
        return kind.is_log_directory or kind.is_partition or bool(log_directories_below(path))
    parsed = names.parse_offset_file_name(path.name)
    return parsed is not None and parsed.kind in LOG_KINDS


def _alternatives(part: str) -> list[str]:
    """A pattern without braces for each of their alternatives, also of braces within braces.

    Raises:
        UsageProblem: a brace is not closed.
    """
    opened = re.search(r"(?<!\\){", part)
    if opened is None:
        return [part]
    depth, starts, end = 0, [opened.end()], None
    for found in re.finditer(r"(?<!\\)[{},]", part[opened.start() :]):
        at = opened.start() + found.start()
        depth += {"{": 1, "}": -1, ",": 0}[found[0]]
        if depth == 1 and found[0] == ",":
            starts.append(at + 1)
        if depth == 0:
            end = at
            break
    if end is None:
        raise UsageProblem(f"a brace is not closed in the pattern {part}")
    ends = [start - 1 for start in starts[1:]] + [end]
    before, after = part[: opened.start()], part[end + 1 :]
    inside = [part[start:stop] for start, stop in zip(starts, ends, strict=True)]
    return [each for one in inside for each in _alternatives(f"{before}{one}{after}")]


def _expression(pattern: str) -> str:
    """A pattern without braces as a regular expression.

    Raises:
        UsageProblem: a bracket is not closed.
    """
    found = ""
    for token in re.finditer(r"\\(.)|\[(\^?)((?:\\.|[^\]\\])+)\]|(.)", pattern, re.DOTALL):
        literal, negated, characters, other = token.groups()
        if other == "[" or re.search(r"(?<!\\)\[", characters or ""):
            raise UsageProblem(f"a bracket is not closed in the pattern {pattern}")
        if characters is not None:
            # Sets within sets, which Python reserves.
            escaped = re.sub(r"(?<!\\)([&~|^])", r"\\\1", characters)
            found += f"[{negated}{escaped}]"
        elif other == "*":
            found += ".*"
        elif other == "?":
            found += "."
        else:
            found += re.escape(literal or other)
    return found
