"""What keeps a broker from starting or serving partitions; commands that free space report it.

They do not repair it, but whoever runs them is about to start the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kdump.check.collector import Collector
from kdump.check.directory import check_directory
from kdump.check.findings import Finding, Severity
from kdump.check.partition_files import check_belonging
from kdump.check.scope import ReplacedLog, scope_in
from kdump.check.start_findings import check_start
from kdump.check.topic_configs import check_topic_configs
from kdump.jobs.loading.replaced_logs import replaced_logs
from kdump.log.broker import partitions_twice
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.state.metadata.cluster import ClusterImage
from kdump.state.metadata.settings import DirectorySettings
from kdump.storage.location import Location


@during("checking log directories")
def severe_findings(
    directories: Sequence[LogDirectory],
    settings: DirectorySettings,
    partitions: Mapping[Location, Sequence[Partition]],
) -> list[Finding]:
    """The severe findings about log directories and some of their partitions, without segments.

    Args:
        directories: all given log directories of a broker.
        partitions: the selected partitions, by the path of the directory.
    """
    twice = partitions_twice(directories)
    replaced = replaced_logs(directories, settings)
    return severe_with(
        directories,
        settings,
        {
            directory.path: [
                finding
                for partition in partitions[directory.path]
                for finding in severe_in(
                    partition, directory, settings[directory.path].cluster, twice, replaced
                )
            ]
            for directory in directories
        },
    )


def severe_in(
    partition: Partition,
    directory: LogDirectory,
    cluster: ClusterImage | None,
    twice: Mapping[Location, Location],
    replaced: Mapping[Location, ReplacedLog] = MappingProxyType({}),
) -> list[Finding]:
    """The severe findings about one partition, without its segments.

    Args:
        cluster: the cluster's metadata; None if unknown.
        twice: the result of :func:`~kdump.log.broker.partitions_twice`.
        replaced: the result of :func:`~kdump.jobs.loading.replaced_logs.replaced_logs`.
    """
    into = Collector()
    check_belonging(scope_in(partition, directory, cluster, twice, replaced=replaced), into)
    return list(_severe(into.findings()))


def severe_with(
    directories: Sequence[LogDirectory],
    settings: DirectorySettings,
    in_partitions: Mapping[Location, Sequence[Finding]],
) -> list[Finding]:
    """The severe findings about log directories, with those about their partitions.

    Args:
        in_partitions: the severe findings about partitions, by the path of the directory.
    """
    clusters = {path: each.cluster for path, each in settings.items()}
    found = [*_severe(check_start(directories, clusters))]
    for directory in directories:
        found += _severe(check_directory(directory))
        own = settings[directory.path]
        found += _severe(check_topic_configs(directory, own.cluster, own.kafka_version))
        found += in_partitions[directory.path]
    return found


def _severe(findings: Iterable[Finding]) -> Iterator[Finding]:
    return (finding for finding in findings if finding.severity is Severity.SEVERE)
