"""The options for the configuration of the broker and its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from kdump.cli.options.option_group import option_group
from kdump.cli.options.parameters import (
    LocationParameter,
    NotParsedError,
    PropertyParameter,
    WordParameter,
)
from kdump.errors import KdumpError
from kdump.formats.kafka_versions import NEWEST, KafkaVersion, parse_kafka_version
from kdump.storage.local_disk import local
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory
    from kdump.state.metadata.settings import Settings


class ConfigArguments(Struct, frozen=True):
    """The configuration given on the command line.

    Attributes:
        given: properties of ``--config``, by Kafka's names.
        broker: properties of ``--server-properties``; None if it was not given.
        metadata: the directory with the cluster's metadata; None to use the log directories.
        words: the same options as typed, to repeat in suggested commands.
        kafka_version: of the broker that will start; None to tell it by the log directories.
    """

    given: Mapping[str, str]
    broker: Mapping[str, str] | None
    metadata: Location | None = None
    words: tuple[str, ...] = ()
    kafka_version: KafkaVersion | None = None

    def settings_of(self, directories: Iterable[LogDirectory]) -> dict[Location, Settings]:
        """Return the settings that apply to each log directory, by its path.

        Raises what :func:`~kdump.state.metadata.settings.read_settings` raises.
        """
        from kdump.state.metadata.settings import read_cluster_metadata, read_settings

        metadata = None if self.metadata is None else read_cluster_metadata(self.metadata)
        return read_settings(directories, self.given, self.broker, metadata, self.kafka_version)


class KafkaVersionParameter(WordParameter["KafkaVersion"]):
    """A version of Kafka that kdump knows, or an older one."""

    name = "version"

    def parse(self, text: str) -> KafkaVersion:
        found = parse_kafka_version(text)
        if found is None:
            raise NotParsedError(f"{text!r} is not a version of Kafka, such as 4.3.1 or 4.4")
        if found[:2] > NEWEST[:2]:
            raise NotParsedError(f"Kafka {found} is unknown; this kdump knows {NEWEST} and before")
        return found


def _config_arguments(
    given: Sequence[tuple[str, str]],
    server_properties: Path | None,
    metadata: Location | None,
    kafka_version: KafkaVersion | None,
) -> ConfigArguments:
    from kdump.state.metadata.settings import require_accepted

    by_hand = dict(given)
    broker = None if server_properties is None else read_properties(server_properties)
    require_accepted(by_hand, broker)
    words = [f"--config={key}={value}" for key, value in given]
    for option, path in (("server-properties", server_properties), ("metadata", metadata)):
        words += [] if path is None else [f"--{option}={path}"]
    words += [] if kafka_version is None else [f"--kafka-version={kafka_version}"]
    return ConfigArguments(by_hand, broker, metadata, tuple(words), kafka_version)


server_properties_option: Final = click.option(
    "--server-properties",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read broker properties from FILE; what it does not set has Kafka's default.",
)
kafka_version_option: Final = click.option(
    "--kafka-version",
    type=KafkaVersionParameter(),
    help="Follow the rules of this Kafka, such as 4.3.1 or 4.4 (default: that of the "
    "broker, by the cluster's metadata; else the newest that kdump knows).",
)

config_options: Final = option_group(
    "config",
    _config_arguments,
    click.option(
        "--config",
        "given",
        type=PropertyParameter(),
        multiple=True,
        help="Set a topic or broker property, by Kafka's name, for all topics; may be repeated "
        "(default: each topic's own configuration, from __cluster_metadata-0 if present).",
    ),
    click.option(
        "--metadata",
        metavar="DIR",
        type=LocationParameter(readable=False),
        help="Read the cluster's metadata from __cluster_metadata-0 in DIR (default: from the "
        "log directories themselves).",
    ),
    server_properties_option,
    kafka_version_option,
)
"""Adds the configuration options, as the argument ``config``: :class:`ConfigArguments`."""


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file of a broker or a controller.

    Raises:
        KdumpError: it cannot be read, or is malformed.
    """
    from kdump.formats.errors import FormatError
    from kdump.formats.java.properties import decode_properties

    try:
        return decode_properties(local(str(path)).read())
    except OSError as failure:
        raise KdumpError(f"{path}: {failure.strerror}") from failure
    except FormatError as problem:
        raise KdumpError(f"{path}: {problem}") from problem
