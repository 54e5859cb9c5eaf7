"""Cases of backups, compared with ``cp`` and with the checksums that a repository has as well."""

from __future__ import annotations

from typing import Final

from case import GIB, Case, Data, Other, Program, compactable
from dump_cases import KEYED_MILLION_BYTES

_SOURCE: Final = compactable("keyed", KEYED_MILLION_BYTES["none"])
_LARGE: Final = compactable("keyed-whole", GIB - 20_000)


def _repository(source: Data) -> Data:
    name = f"{source.folder}-repository"
    return Data(f"back_up({name!r}, {source.folder!r}, folder)", source.gb, name)


def _copied_to(target: str) -> Other:
    """Copy the source to a folder, and compute the SHA-256 of each copy."""
    words = (f"{{data}}/{_SOURCE.folder}", f"{{data}}/{target}")
    return Other(Program.COPY_AND_SUM, words, before=_removed(target))


def _removed(target: str) -> str:
    return f"remove({target!r}, folder)"


def _as_fast_as_copying(name: str, target: str, *words: str, data: tuple[Data, ...]) -> Case:
    return Case(
        f"{name}, {_SOURCE.gb:.1f} GB",
        words,
        (_copied_to(f"{target}-by-cp"),),
        data,
        _removed(target),
        copies_gb=2 * _SOURCE.gb,
        ratio=1 / 0.6,
    )


BACKUPS: Final = (
    _as_fast_as_copying(
        "backup create, first",
        "first-backup",
        *("backup", "create", "{data}/first-backup", f"{{data}}/{_SOURCE.folder}"),
        data=(_SOURCE,),
    ),
    _as_fast_as_copying(
        "backup restore",
        "restored",
        *("backup", "restore", "--into", "{data}/restored"),
        f"{{data}}/{_repository(_SOURCE).folder}",
        data=(_SOURCE, _repository(_SOURCE)),
    ),
    Case(
        "backup create, 8 GiB, segments known",
        (
            *("backup", "create", f"{{data}}/{_repository(_LARGE).folder}"),
            f"{{data}}/{_LARGE.folder}",
        ),
        data=(_LARGE, _repository(_LARGE)),
        seconds=2,
        peak_mb=100,
    ),
)
