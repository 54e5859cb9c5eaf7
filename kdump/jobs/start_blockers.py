"""What keeps a broker from starting or serving partitions; commands that free space report it.

They do not repair it, but whoever runs them is about to start the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kdump.check.collector import Collector
from kdump.check.directory import check_directory
from kdump.check.findings import Finding, Severity
from kdump.check.partition_files import check_belonging
from kdump.check.scope import scope_in
from kdump.check.start import check_start
from kdump.check.topic_configs import check_topic_configs
from kdump.log.broker import partitions_twice
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.state.metadata.settings import Settings
from kdump.storage.location import Location


@during("checking log directories")
def severe_findings(
    directories: Sequence[LogDirectory],
    settings: Mapping[Location, Settings],
    partitions: Mapping[Location, Sequence[Partition]],
) -> list[Finding]:
    """The severe findings about log directories and some of their partitions, without segments.

    Args:
        directories: all given log directories of a broker.
        settings: of their topics, by the path of the directory.
        partitions: the selected partitions, by the path of the directory.
    """
    found = [*check_start(directories)]
    twice = partitions_twice(directories)
    for directory in directories:
        cluster = settings[directory.path].cluster
        found += check_directory(directory)
        found += check_topic_configs(directory, cluster)
        for partition in partitions[directory.path]:
            scope = scope_in(partition, directory, cluster, twice)
            into = Collector()
            check_belonging(scope, into)
            found += into.findings()
    return list(_severe(found))


def _severe(findings: Sequence[Finding]) -> Iterator[Finding]:
    return (finding for finding in findings if finding.severity is Severity.SEVERE)
