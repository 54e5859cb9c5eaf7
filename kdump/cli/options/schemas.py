"""Reading the schemas for keys and values, and reporting what is wrong with them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kdump.cli.output.events import write_notice
from kdump.jobs.schemas import log_directories_of, read_schemas
from kdump.payloads.protobuf_payloads import NOT_INSTALLED
from kdump.state.schema_registry import PROTOBUF, SCHEMAS_TOPIC, SchemaRegistry
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics

_MOST_PROBLEMS: Final = 20
_OF_PROTOBUF: Final = ("google.protobuf", "grpc_tools")


def read_registry(
    given: Sequence[Location], paths: Iterable[Location], diagnostics: Diagnostics
) -> SchemaRegistry:
    """Read the schemas.

    Args:
        given: where they are, by ``--schemas``; empty to look for the registry's topic in the log
            directories of the data.
        paths: of the data.
    """
    places = given or tuple(log_directories_of(paths))
    found = read_schemas(places)
    for failure in found.unreadable:
        diagnostics.report_problem(failure.path, failure.what, is_damage=False)
    for damage in found.damage:
        diagnostics.report_damage(damage)
    problems = found.registry.problems
    for problem in problems[:_MOST_PROBLEMS]:
        write_notice(f"{problem}; it is left out")
    if len(problems) > _MOST_PROBLEMS:
        more = counted(len(problems) - _MOST_PROBLEMS, "more record", "more records")
        write_notice(f"{more} of schemas left out")
    if not found.has_source and not found.unreadable:
        where = ", ".join(map(str, places)) or "the directories around the data"
        hint = "" if given else "; name schemas with --schemas"
        write_notice(f"no topic {SCHEMAS_TOPIC} in {where}{hint}")
    is_needed = any(each.schema_type == PROTOBUF for each in found.registry.versions.values())
    if is_needed and not all(map(_is_installed, _OF_PROTOBUF)):
        write_notice(NOT_INSTALLED)
    return found.registry


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
