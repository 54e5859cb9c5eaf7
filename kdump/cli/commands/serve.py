"""Answer Kafka clients from the disks of brokers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.config_options import (
    kafka_version_option,
    read_properties,
    server_properties_option,
)
from kdump.cli.options.parameters import paths_argument
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.events import write_line, write_notice
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.names import CLUSTER_METADATA_TOPIC
from kdump.phases import phase
from kdump.storage.location import Location
from kdump.words import counted, first_of

if TYPE_CHECKING:
    from pathlib import Path

    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.formats.kafka_versions import KafkaVersion
    from kdump.log.directory import LogDirectory
    from kdump.log.remote_files import RemotePlace
    from kdump.log.replicas import Replica
    from kdump.log.selection import PartitionSelection
    from kdump.serve.admission import Admission, Identities
    from kdump.serve.served_cluster import ServedCluster
    from kdump.state.metadata.metadata_image import MetadataImage

_MOST_NAMED: Final = 8
"""So many topics without a replica are named."""

Address = tuple[str, int]


class AddressParameter(click.ParamType[Address]):
    """HOST:PORT."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{str(value)!r} is not HOST:PORT, such as 127.0.0.1:9092", param, ctx)
        return host, int(port)


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@click.command("serve")
@paths_argument("LOG_DIR")
@click.option(
    "--listen",
    "address",
    type=AddressParameter(),
    default="127.0.0.1:9092",
    metavar="HOST:PORT",
    help="Listen at HOST:PORT; port 0 is any free one (default: 127.0.0.1:9092).",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    help="Use TLS, with the certificate and its chain in FILE (PEM).",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    help="Use the key in FILE for the certificate (PEM, without a password).",
)
@click.option(
    "--sasl",
    "with_sasl",
    is_flag=True,
    help="Ask clients for their SCRAM credentials, and enforce the cluster's ACLs.",
)
@click.option(
    "--super-user",
    "super_users",
    multiple=True,
    metavar="USER",
    help="Let USER read everything, whatever the ACLs say; may be repeated.",
)
@click.option(
    "--allow-anyone",
    is_flag=True,
    help="Let everyone who can reach the address read everything.",
)
@click.option(
    "--broker",
    "broker_id",
    type=click.IntRange(min=0),
    metavar="ID",
    help="Serve the replicas of broker ID (default: the most advanced one of each partition).",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Leave out damaged batches (default: a fetch fails where they begin).",
)
@server_properties_option
@kafka_version_option
@selection_options
@remote_option
def command(
    paths: Sequence[Location],
    address: Address,
    tls_cert: str | None,
    tls_key: str | None,
    with_sasl: bool,
    super_users: tuple[str, ...],
    allow_anyone: bool,
    broker_id: int | None,
    skip_damaged: bool,
    server_properties: Path | None,
    kafka_version: KafkaVersion | None,
    selection: PartitionSelection,
    remote: RemotePlace | None,
) -> ExitStatus:
    """Answer Kafka clients from the disks of brokers, read-only, until it is stopped.

    LOG_DIR is a log directory; name those of all brokers and controllers that are there. Consumers
    and admin tools connect as to a broker. Nothing is written.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import without_garbage_collection

    _check_admission(
        address[0],
        certificate=tls_cert,
        key=tls_key,
        with_sasl=with_sasl,
        super_users=super_users,
        allow_anyone=allow_anyone,
    )
    _require_kio()
    broker = None if server_properties is None else read_properties(server_properties)
    from kdump.serve.admission import Admission, tls_context
    from kdump.serve.served_cluster import ServeRequest, open_cluster
    from kdump.serve.served_notices import ServedNotices
    from kdump.serve.server import serve

    tls = None if tls_cert is None or tls_key is None else tls_context(tls_cert, tls_key)
    diagnostics = Diagnostics()
    with without_garbage_collection():
        directories = list(_directories(with_remote(paths, remote), selection, diagnostics))
        if not directories:
            return diagnostics.status
        request = ServeRequest(
            directories,
            _image(directories, diagnostics, must_be_whole=with_sasl),
            selection,
            broker_id,
            broker,
            kafka_version,
        )

        def failed(replica: Replica, failure: OSError) -> None:
            diagnostics.report(replica.partition.path, failure)

        notices = ServedNotices(write_notice, skip_damaged)
        with phase("choosing among replicas"):
            cluster = open_cluster(request, notices, failed)
    if not cluster.topics and not selection.is_everything:
        raise nothing_selected(selection, [each.path for each in directories])

    identities = _identities(cluster.image, super_users) if with_sasl else None
    admission = Admission(tls, identities, None if _is_address(address[0]) else address[0])

    def ready(host: str, port: int) -> None:
        for line in _start_lines(cluster, broker_id, host, port):
            write_line(line)
        for line in _admission_lines(admission, f"{host}:{port}", allow_anyone=allow_anyone):
            write_line(line)
        write_line("Stop with Ctrl-C.")
        sys.stdout.flush()

    serve(cluster, notices, *address, ready, admission)
    for line in notices.summary():
        write_line(line)
    if notices.has_damage:
        diagnostics.status |= ExitStatus.DAMAGE_LEFT
    return diagnostics.status


def _is_address(host: str) -> bool:
    """Whether it is an address, or the name of this machine alone, and no other name."""
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _check_admission(
    host: str,
    *,
    certificate: str | None,
    key: str | None,
    with_sasl: bool,
    super_users: Sequence[str],
    allow_anyone: bool,
) -> None:
    """Check who would be let in.

    Raises:
        UsageProblem: options do not go together, or strangers would be let in.
    """
    if (certificate is None) != (key is None):
        raise UsageProblem("--tls-cert and --tls-key require each other")
    if super_users and not with_sasl:
        raise UsageProblem("--super-user requires --sasl")
    if allow_anyone and with_sasl:
        raise UsageProblem("--allow-anyone and --sasl are mutually exclusive")
    if not _is_loopback(host) and not allow_anyone and not (certificate and with_sasl):
        raise UsageProblem(
            f"{host} can be reached from other machines: it requires --tls-cert, --tls-key and"
            " --sasl, or --allow-anyone"
        )


def _identities(image: MetadataImage | None, super_users: Sequence[str]) -> Identities:
    """The users and the ACLs of the cluster.

    Raises:
        KdumpError: the cluster has no user who could authenticate.
    """
    from kdump.serve.admission import Identities
    from kdump.serve.authentication import Credentials
    from kdump.state.metadata.authorizer import Authorizer
    from kdump.state.metadata.metadata_image import EntityKind

    if image is None:
        raise KdumpError("--sasl needs the cluster's metadata, and no log directory has it")
    credentials = Credentials(image.of(EntityKind.SCRAM).values())
    if not credentials.user_count:
        raise KdumpError("--sasl needs SCRAM credentials, and the cluster's metadata has none")
    acls = image.of(EntityKind.ACL).values()
    return Identities(credentials, Authorizer(acls, [f"User:{each}" for each in super_users]))


def _admission_lines(admission: Admission, address: str, *, allow_anyone: bool) -> Iterator[str]:
    """Who may connect."""
    if admission.tls is not None:
        yield "  by TLS"
    if admission.identities is not None:
        users = counted(admission.identities.credentials.user_count, "user")
        yield f"  for the {users} with SCRAM credentials, as the cluster's ACLs allow"
    elif allow_anyone:
        yield (f"  to anyone: whoever can reach {address} may read everything, without a password")


def _require_kio() -> None:
    """Check that the messages of the protocol are there.

    Raises:
        KdumpError: they are not installed.
    """
    try:
        import kio  # noqa: F401
        import re2  # noqa: F401
        import scramp  # noqa: F401
    except ImportError as failure:
        raise KdumpError(
            "serve needs the packages google-re2, kio and scramp: pip install 'kafka-kdump[serve]'"
        ) from failure


def _directories(
    paths: Sequence[Location], selection: PartitionSelection, diagnostics: Diagnostics
) -> Iterator[LogDirectory]:
    """Read the log directories: the selected partitions, metadata, groups and transactions."""
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, SHARE_STATE_TOPIC
    from kdump.jobs.listing.partition_facts import listed_as_loaded
    from kdump.state.transactions.transaction_coordinator import TRANSACTION_STATE_TOPIC
    from kdump.tiered.left_in_tier import left_in_tier

    needed = {
        *(CLUSTER_METADATA_TOPIC, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC),
    }
    for path, kind in find_log_directories(paths, diagnostics).items():
        found = listed_as_loaded(
            path,
            kind,
            diagnostics,
            lambda name, key: key.topic in needed or selection.matches(name, key),
        )
        if found is not None:
            if (said := left_in_tier(found, found.partitions)) is not None:
                write_notice(said)
            yield found


def _image(
    directories: Sequence[LogDirectory], diagnostics: Diagnostics, *, must_be_whole: bool
) -> MetadataImage | None:
    """The cluster's metadata; None without a copy that can be read, which is reported.

    Raises:
        KdumpError: it has to be whole, and is not.
    """
    from kdump.serve.served_cluster import newest_image

    try:
        return newest_image(directories, write_notice, must_be_whole=must_be_whole)
    except KdumpError as failure:
        if must_be_whole:
            raise
        diagnostics.report_failure(failure)
    except OSError as failure:
        diagnostics.report(directories[0].path, failure)
    return None


def _start_lines(
    cluster: ServedCluster, broker_id: int | None, host: str, port: int
) -> Iterator[str]:
    """What is served, where, and from which replicas."""
    partitions = sum(len(each.partitions) for each in cluster.topics.values())
    of = "" if cluster.cluster_id is None else f" of cluster {cluster.cluster_id}"
    shown_host = f"[{host}]" if ":" in host else host
    yield (
        f"Serving {counted(len(cluster.topics), 'topic')} with"
        f" {counted(partitions, 'partition')}{of} at {shown_host}:{port}, read-only"
    )
    for path, count in sorted(cluster.partitions_by_directory().items()):
        yield f"  {counted(count, 'partition')} from {path}"
    if cluster.not_chosen:
        yield (
            f"  {counted(cluster.not_chosen, 'replica')} not served: the most advanced one of each"
            " partition is; --broker ID takes another"
        )
    if broker_id is not None:
        yield f"  only replicas of broker {broker_id}, as --broker says"
    if cluster.other_topics:
        first = cluster.other_topics[0].partition.path
        yield (
            f"  {counted(len(cluster.other_topics), 'replica')} not served: of another topic with"
            f" the same name (first: {first}); name its log directory alone to serve it"
        )
    missing = [
        f"{topic.name}-{each.number}"
        for topic in cluster.topics.values()
        for each in topic.partitions.values()
        if each.log is None
    ]
    if missing:
        yield f"  without a replica here: {first_of(missing, _MOST_NAMED)}"
    if cluster.image is None:
        yield "  without the cluster's metadata: no log directory has __cluster_metadata"
