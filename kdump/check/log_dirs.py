"""Check that the directories that a properties file names are the given log directories.

Follows ``KafkaConfig.logDirs`` and ``LogManager.createAndValidateLogDirs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Place, Severity
from kdump.check.start import StartProblem
from kdump.formats.server_properties import ServerProperties
from kdump.log.directory import LogDirectory
from kdump.storage.location import Location


class ConfiguredDirectories(Struct, frozen=True):
    """The given log directories by their names in a properties file.

    Attributes:
        by_name: the directories; those of ``log.dirs`` first.
        guessed: names that were taken for a directory only because both end alike: the directory
            is a copy, or mounted elsewhere.
        missing: names without a given directory.
        others: given directories without a name.
    """

    by_name: Mapping[str, LogDirectory]
    guessed: frozenset[str]
    missing: tuple[str, ...]
    others: tuple[LogDirectory, ...]

    @classmethod
    def of(
        cls, server: ServerProperties, directories: Sequence[LogDirectory]
    ) -> ConfiguredDirectories:
        """Find the directory for each name, by its path or, if that is elsewhere, by its end."""
        names = dict.fromkeys((*server.log_dirs, server.metadata_log_dir))
        found = {name: each for name in names for each in directories if _is_at(each.path, name)}
        left = [each for each in directories if each not in found.values()]
        missing = [name for name in names if name not in found]
        guessed = set()
        for name in missing:
            alike = [each for each in left if _end(str(each.path)) == _end(name)]
            if len(alike) == 1 and [_end(each) for each in missing].count(_end(name)) == 1:
                found[name] = alike[0]
                guessed.add(name)
        return cls(
            {name: found[name] for name in names if name in found},
            frozenset(guessed),
            tuple(name for name in missing if name not in found),
            tuple(each for each in left if each not in found.values()),
        )


def check_log_dirs(
    path: str,
    server: ServerProperties,
    configured: ConfiguredDirectories,
    directories: Sequence[LogDirectory],
) -> Iterator[StartProblem]:
    """Check that the names of a properties file are the given directories, each once.

    Args:
        configured: the directories by name.
        directories: those that were given.
    """
    for name in configured.missing:
        is_there = _is_there(directories, name)
        yield StartProblem(
            invariants.LOG_DIRS_MISMATCH.finding(
                Place(path),
                "the file names a log directory that was not given: it is not checked"
                if is_there
                else "the file names a log directory that does not exist: a broker does not start",
                found=name,
                severity=Severity.ERROR if is_there else Severity.SEVERE,
            ),
            is_refusal=not is_there,
        )
    for each in configured.others:
        yield StartProblem(
            invariants.LOG_DIRS_MISMATCH.finding(
                Place(str(each.path)),
                "the directory is not in log.dirs: a broker starts without it, and does not serve"
                " its partitions",
                expected=f"one of {', '.join(server.log_dirs)}",
                severity=Severity.ERROR,
            ),
            is_refusal=False,
        )
    seen: dict[Location, str] = {}
    for name in server.log_dirs:
        directory = configured.by_name.get(name)
        if directory is None:
            continue
        other = seen.setdefault(directory.path, name)
        if other != name:
            yield StartProblem(
                invariants.LOG_DIRS_MISMATCH.finding(
                    Place(path),
                    "log.dirs names one directory twice: a broker does not start",
                    found=f"{other} and {name}",
                )
            )


def _is_there(directories: Sequence[LogDirectory], name: str) -> bool:
    """Whether there is anything by a name, on the storage of the given directories."""
    storages = {each.path.storage for each in directories}
    return any(Location(storage, name).kind() is not None for storage in storages)


def _is_at(path: Location, name: str) -> bool:
    """Whether a name in the file is the path of a directory."""
    named = Location(path.storage, name)
    try:
        return path.is_same(named)
    except OSError:
        return False


def _end(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
