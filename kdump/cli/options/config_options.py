"""The options that say how the broker, and its topics, were configured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdump.cli.options.parameters import PropertyParameter
from kdump.errors import KdumpError

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory
    from kdump.state.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ConfigArguments:
    """What the command line says of configuration; the argument that a command is given.

    Attributes:
        given: properties by Kafka's names.
        broker: those of the broker's file; None where that was not given.
        metadata: where the cluster's metadata lies, if not in one of the log directories.
        words: the same as on the command line, for commands that are advised.
    """

    given: Mapping[str, str]
    broker: Mapping[str, str] | None
    metadata: Path | None = None
    words: tuple[str, ...] = ()

    def settings_of(self, directories: Iterable[LogDirectory]) -> dict[Path, Settings]:
        """The settings of each log directory's own broker, by the path of the directory.

        As :func:`~kdump.state.settings.read_settings`.
        """
        from kdump.state.settings import read_cluster_metadata, read_settings

        metadata = None if self.metadata is None else read_cluster_metadata(self.metadata)
        return read_settings(directories, self.given, self.broker, metadata)


def config_options(command: Command) -> Command:
    """Give a command the options on configuration, as its one argument ``config``.

    That is a :class:`ConfigArguments`.
    """

    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        given: Sequence[tuple[str, str]],
        server_properties: Path | None,
        metadata: Path | None,
        **others: Any,
    ) -> Any:
        from kdump.state.settings import require_accepted

        by_hand = dict(given)
        broker = None if server_properties is None else _read_properties(server_properties)
        require_accepted(by_hand, broker)
        words = [f"--config={key}={value}" for key, value in given]
        for option, path in (("server-properties", server_properties), ("metadata", metadata)):
            words += [] if path is None else [f"--{option}={path}"]
        config = ConfigArguments(by_hand, broker, metadata, tuple(words))
        return command(*args, config=config, **others)

    decorated: Any = with_one_argument
    for option in (
        click.option(
            "--server-properties",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="The broker's own file. What it does not set is Kafka's default.",
        ),
        click.option(
            "--metadata",
            metavar="DIR",
            type=click.Path(readable=False, path_type=Path),
            help="Read the cluster's metadata from __cluster_metadata-0 in DIR (default: from the "
            "log directories themselves).",
        ),
        click.option(
            "--config",
            "given",
            type=PropertyParameter(),
            multiple=True,
            metavar="KEY=VALUE",
            help="A property of all topics, or of the broker, by Kafka's name. Can be given many "
            "times. Without it each topic's own configuration is read from __cluster_metadata-0, "
            "where that is there.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _read_properties(path: Path) -> dict[str, str]:
    from kdump.formats.errors import FormatError
    from kdump.formats.properties import decode_properties

    try:
        return decode_properties(path.read_bytes())
    except OSError as failure:
        raise KdumpError(f"{path}: {failure.strerror}") from failure
    except FormatError as problem:
        raise KdumpError(f"{path}: {problem}") from problem
