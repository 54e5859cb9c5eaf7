"""The schemas that a query over ``kafka-log`` needs, read once for all of its tasks."""

from __future__ import annotations

import logging
from typing import Final

from kdump.errors import ExitStatus, KdumpError
from kdump.jobs.schemas import SchemasRead, log_directories_of, read_schemas
from kdump.payloads.record_payloads import RecordPayloads
from kdump.state.schema_registry import SCHEMAS_TOPIC, SchemaRegistry
from kdump.storage.places import parse_location, parse_locations
from kdump.tables.kafka_log.damage import DamagedLogError, status_of, with_status
from kdump.tables.kafka_log.options import Mode, SourceOptions

_LOG: Final = logging.getLogger(__name__)


def read_payloads(options: SourceOptions) -> RecordPayloads:
    """How keys and values become text, with the schemas that their formats need.

    Raises:
        KdumpError: schemas are damaged or cannot be read, and the mode is ``FAILFAST``.
    """
    registry = SchemaRegistry()
    formats = (options.key_format, options.value_format)
    if any(each is not None and each.uses_schemas for each in formats):
        places = list(map(parse_location, options.schemas)) or list(
            log_directories_of(parse_locations(options.paths))
        )
        found = read_schemas(places)
        _report(found, options.mode)
        if not found.has_source and not found.unreadable:
            named = ", ".join(map(str, places)) or "the directories around the data"
            _LOG.warning("no topic %s in %s", SCHEMAS_TOPIC, named)
        registry = found.registry
    return RecordPayloads.of(*formats, registry)


def _report(found: SchemasRead, mode: Mode) -> None:
    if mode is Mode.FAILFAST:
        for failure in found.unreadable:
            raise KdumpError(f"{failure.path}: {failure.what}")
        for damage in found.damage:
            raise DamagedLogError(damage)
    for failure in found.unreadable:
        _LOG.warning(
            "%s: %s",
            failure.path,
            failure.what,
            extra=with_status(ExitStatus.OPERATIONAL_ERROR),
        )
    for damage in found.damage:
        _LOG.warning("%s: schemas in it are missing", damage, extra=with_status(status_of(damage)))
    for problem in found.registry.problems:
        _LOG.warning("%s; it is left out", problem)
