"""What ``kdump serve`` needs to ask clients who they are: a certificate, users and ACLs."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kio.schema.errors import ErrorCode
from scramp import ScramClient, ScramMechanism

from builders.serving import RunningServer, decoded, framed, received
from kdump.serve.admission import Admission, Identities, tls_context
from kdump.serve.authentication import Credentials
from kdump.state.metadata.authorizer import Authorizer
from kdump.state.metadata.metadata_entities import AccessControlEntry, ScramCredential

PASSWORD: Final = "wonderland"
ITERATIONS: Final = 4096
RECORDS: Final = 30
"""So many are in each partition of the directory that tests share."""


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kdump tests")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    own, private = directory / "server.pem", directory / "server.key"
    own.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return own, private


def credential(user: str, mechanism: str) -> ScramCredential:
    """The credential of a user whose password is ``PASSWORD``."""
    salt, stored, server, count = ScramMechanism(mechanism).make_auth_info(
        PASSWORD, iteration_count=ITERATIONS
    )
    return ScramCredential(user, mechanism, count, salt, stored, server)


def acl(
    principal: str,
    operation: str,
    resource: str,
    permission: str = "ALLOW",
    *,
    pattern: str = "LITERAL",
    host: str = "*",
) -> AccessControlEntry:
    """An ACL of a resource, such as TOPIC:orders."""
    kind, _, name = resource.partition(":")
    return AccessControlEntry("id", kind, name, pattern, principal, host, operation, permission)


ACLS: Final = (
    acl("User:alice", "READ", "TOPIC:orders"),
    acl("User:alice", "READ", "GROUP:tests"),
    acl("User:bob", "DESCRIBE", "TOPIC:orders"),
)


def admission(
    directory: Path, acls: Iterable[AccessControlEntry], *, with_tls: bool = True
) -> Admission:
    """Users alice (SCRAM-SHA-256), bob (SCRAM-SHA-512) and root, who may do everything."""
    credentials = Credentials(
        [
            credential("alice", "SCRAM-SHA-256"),
            credential("bob", "SCRAM-SHA-512"),
            credential("root", "SCRAM-SHA-256"),
        ]
    )
    tls = tls_context(*map(str, write_certificate(directory))) if with_tls else None
    return Admission(tls, Identities(credentials, Authorizer(acls, ["User:root"])))


def client_options(directory: Path, user: str, mechanism: str, **other: Any) -> dict[str, Any]:
    """Options of librdkafka for SASL_SSL."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "server.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORD,
        **other,
    }


def client_properties(server: RunningServer, directory: Path, user: str) -> dict[str, str]:
    """The properties of Kafka's own clients for a user of SCRAM-SHA-256."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": server.address,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "server.pem"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="{user}" password="{PASSWORD}";',
    }


OPEN: Final[list[socket.socket]] = []
"""Connections of the test that runs, which closes them."""


class Connection:
    """A connection that stays open, by TLS or not."""

    def __init__(self, server: RunningServer, trusted: Path | None = None) -> None:
        self.socket = server.connect()
        if trusted is not None:
            context = ssl.create_default_context(cafile=trusted)
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        OPEN.append(self.socket)

    @classmethod
    def of(cls, server: RunningServer, user: str, trusted: Path | None = None) -> Self:
        """A connection of a user who has authenticated."""
        connection = cls(server, trusted)
        mechanism = "SCRAM-SHA-512" if user == "bob" else "SCRAM-SHA-256"
        assert connection.authenticate(user, mechanism).error_code is ErrorCode.none
        return connection

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        self.socket.sendall(framed(api_key, version, **fields))
        return self.answer(api_key, version)

    def answer(self, api_key: int, version: int) -> Any:
        """The next response, to a request of this kind."""
        data = received(self.socket)
        assert data, "the server closed the connection"
        return decoded(api_key, version, data)

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def authenticate(self, user: str, mechanism: str, password: str = PASSWORD) -> Any:
        """Say who one is; gives the last answer."""
        assert self.ask(17, 1, mechanism=mechanism).error_code is ErrorCode.none
        client = ScramClient([mechanism], user, password)
        first = self.ask(36, 2, auth_bytes=client.get_client_first().encode())
        if first.error_code is not ErrorCode.none:
            return first
        client.set_server_first(first.auth_bytes.decode())
        last = self.ask(36, 2, auth_bytes=client.get_client_final().encode())
        if last.error_code is ErrorCode.none:
            client.set_server_final(last.auth_bytes.decode())
        return last


def fetch_of(*topics: str, most_bytes: int = 1 << 20) -> bytes:
    """A request for the records of the first partition of topics."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": most_bytes}
    return framed(
        1,
        12,
        replica_id=-1,
        max_wait=dt.timedelta(0),
        min_bytes=1,
        max_bytes=most_bytes,
        isolation_level=0,
        topics=[{"topic": each, "partitions": [partition]} for each in topics],
        forgotten_topics_data=[],
    )
