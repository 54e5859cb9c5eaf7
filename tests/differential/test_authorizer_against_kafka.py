"""What ACLs allow, as Kafka's own authorizer decides."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest

from builders.java_server import JavaServer
from kdump.state.metadata.authorizer import Authorizer, java_address
from kdump.state.metadata.metadata_entities import AccessControlEntry

pytestmark = pytest.mark.differential

PRINCIPALS: Final = ("User:alice", "User:bob", "User:root", "User:*")
ADDRESSES: Final = ("10.1.2.3", "10.1.2.128", "192.168.0.1", "127.0.0.1", "::1", "2001:db8::7")
HOSTS: Final = ("*", "10.1.2.3", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1")
RANGES: Final = (
    *("10.0.0.0/8", "10.1.2.0/25", "010.1.2.3/32", "10.1.2.77/26", "2001:db8::/32", "::1/128"),
    *("10.1.2.3/33", "10.0.0.0/255.0.0.0", "nonsense/8"),
)
TYPES: Final = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
NAMES: Final = ("a", "ab", "abc", "abd", "b", "kafka-cluster", "orders", "orders-2", "*")
OPERATIONS: Final = (
    *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"),
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("java_classpath", HOSTS), id="4.3.1"),
        pytest.param(("newest_classpath", (*HOSTS, *RANGES)), id="4.4.0"),
    ],
)
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[JavaServer, tuple[str, ...]]]:
    classpath, hosts = request.param
    with JavaServer(request.getfixturevalue(classpath), "AuthorizerServer") as running:
        yield running, hosts


@pytest.mark.parametrize("seed", range(12))
def test_random_acls(seed: int, kafka: tuple[JavaServer, tuple[str, ...]]) -> None:
    server, hosts = kafka
    rng = random.Random(seed)
    acls = [
        AccessControlEntry(
            str(number),
            rng.choice(TYPES),
            rng.choice(NAMES),
            rng.choice(("LITERAL", "PREFIXED")),
            rng.choice(PRINCIPALS),
            rng.choice(hosts),
            rng.choice(OPERATIONS),
            rng.choice(("ALLOW", "ALLOW", "DENY")),
        )
        for number in range(rng.choice((3, 30, 150)))
    ]
    tell(server, "new", "User:root")
    for each in acls:
        words = (each.resource_type, each.resource_name, each.pattern_type, each.principal)
        tell(server, "acl", *words, each.host, each.operation, each.permission_type)
    authorizer = Authorizer(acls, ["User:root"])
    for _ in range(400):
        principal, address = rng.choice(PRINCIPALS[:3]), rng.choice(ADDRESSES)
        asked = rng.choice(OPERATIONS[:-1]), rng.choice(TYPES), rng.choice((*NAMES[:-1], "other"))
        tell(server, "may", principal, address, *asked)
        server.requests.flush()
        said = server.answers.readline().decode().strip()
        ours = authorizer.allows(principal, java_address(address), *asked)
        assert ours == (said == "ALLOWED"), (principal, address, asked, said)


def tell(server: JavaServer, *words: str) -> None:
    server.requests.write(("\t".join(words) + "\n").encode())
