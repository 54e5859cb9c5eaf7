"""What users see of a dead cluster, by its ACLs."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from builders.batches import batches
from builders.serving import RunningServer, framed, opened
from builders.serving_securely import ACLS, Connection, acl, admission, fetch_of
from kdump.serve.authorization import RULES
from kdump.serve.message_shapes import nested_entity
from kdump.serve.messages import API_VERSIONS, versions_of
from kdump.serve.refusing_answers import PRODUCE
from kdump.state.metadata.metadata_entities import AccessControlEntry
from serve.test_answers import OFFERED

TOPIC: Final = ErrorCode.topic_authorization_failed
GROUP: Final = ErrorCode.group_authorization_failed
CLUSTER: Final = ErrorCode.cluster_authorization_failed
TRANSACTION: Final = ErrorCode.transactional_id_authorization_failed
REFUSALS: Final = {
    **dict.fromkeys((1, 2, 3, 23, 61, 75), TOPIC),
    **dict.fromkeys((8, 9, 10, 11, 12, 13, 14, 15, 68, 69, 77, 89, 90), GROUP),
    **dict.fromkeys((29, 32, 35, 46, 48, 50, 55, 74), CLUSTER),
    **dict.fromkeys((16, 41, 60, 66), None),
    65: TRANSACTION,
}
"""The error that each API has for who may do nothing; of some, only the answer is empty."""
SILENT: Final = {(35, 1), (35, 2)}
"""Versions that have no field for an error."""


@pytest.fixture(scope="module")
def nothing_allowed(
    shared_dead_cluster: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server of the real cluster whose users have no ACLs."""
    directory = tmp_path_factory.mktemp("nothing")
    nobody = admission(directory, (), with_tls=False)
    with RunningServer(
        shared_dead_cluster.cluster, shared_dead_cluster.notices, [], nobody
    ) as running:
        yield running


def test_each_api_of_a_cluster_is_judged(nothing_allowed: RunningServer) -> None:
    asked = Connection.of(nothing_allowed, "root").ask(
        API_VERSIONS, 3, client_software_name="test", client_software_version="1"
    )
    others = {API_VERSIONS, PRODUCE, 17, 36}
    assert {each.api_key for each in asked.api_keys} - others == REFUSALS.keys()


@pytest.mark.parametrize("is_everything", [False, True], ids=["one", "everything"])
@pytest.mark.parametrize("api_key", REFUSALS)
def test_no_version_tells_anything_to_who_may_do_nothing(
    api_key: int, is_everything: bool, nothing_allowed: RunningServer
) -> None:
    cluster = nothing_allowed.cluster
    secret = {*cluster.topics, "g-classic", "g-consumer", "txn-hang"}
    oldest, newest = versions_of(api_key)
    connection = Connection.of(nothing_allowed, "alice")
    for version in range(oldest, newest + 1):
        asked = question(load_request_schema(api_key, version), cluster, is_everything)
        answer = connection.ask(api_key, version, **asked)
        values = list(plain_values(answer))
        texts = {each for each in values if isinstance(each, str)}
        assert texts & secret <= set(map(str, plain_values(asked))), (version, texts & secret)
        assert not any(each for each in values if isinstance(each, bytes)), version
        errors = {each for each in values if isinstance(each, ErrorCode)} - {ErrorCode.none}
        if not is_everything and (api_key, version) not in SILENT:
            assert errors == ({REFUSALS[api_key]} - {None}), (version, errors)


GROUPS_ONLY: Final = (
    acl("User:alice", "READ", "GROUP:*"),
    acl("User:alice", "DESCRIBE", "TRANSACTIONAL_ID:*"),
    acl("User:alice", "DESCRIBE", "TOPIC:orders"),
)


def test_groups_and_transactions_do_not_tell_of_topics_that_are_not_allowed(
    dead_cluster: RunningServer, tmp_path: Path
) -> None:
    """Without the subscriptions of the classic protocol, which brokers do not look into, either."""
    cluster = dead_cluster.cluster
    allowed = admission(tmp_path, GROUPS_ONLY, with_tls=False)
    with RunningServer(cluster, dead_cluster.notices, [], allowed) as server:
        root, alice = (Connection.of(server, user) for user in ("root", "alice"))
        groups = [
            each.group_id for each in root.ask(16, 5, states_filter=(), types_filter=()).groups
        ]
        every = [{"group_id": each, "topics": None} for each in groups]
        ids = root.ask(66, 0, state_filters=("Ongoing",), producer_id_filters=())
        transactions = [each.transactional_id for each in ids.transaction_states]
        questions: list[tuple[int, int, dict[str, Any]]] = [
            (9, 9, {"require_stable": False, "groups": every}),
            (69, 1, {"group_ids": groups, "include_authorized_operations": False}),
            (77, 1, {"group_ids": groups, "include_authorized_operations": False}),
            (90, 1, {"groups": every}),
            (65, 0, {"transactional_ids": transactions}),
        ]
        for api_key, version, asked in questions:
            told = {}
            for user, connection in (("root", root), ("alice", alice)):
                values = set(map(str, plain_values(connection.ask(api_key, version, **asked))))
                told[user] = values & (cluster.topics.keys() - set(groups))
            # The share groups of these disks have no members.
            assert bool(told["root"] - {"orders"}) == (api_key != 77), api_key
            assert told["alice"] <= {"orders"}, api_key


def test_a_member_gets_topics_that_it_may_describe(
    dead_cluster: RunningServer, tmp_path: Path
) -> None:
    """One that it names is refused; a regular expression does not match others."""
    cluster = dead_cluster.cluster
    allowed = admission(tmp_path, GROUPS_ONLY, with_tls=False)
    joining = {
        "group_id": "g-new",
        "member_epoch": 0,
        "rebalance_timeout": dt.timedelta(seconds=10),
        "topic_partitions": (),
    }
    with RunningServer(cluster, dead_cluster.notices, [], allowed) as server:
        alice = Connection.of(server, "alice")
        named = alice.ask(68, 1, **joining, member_id="a", subscribed_topic_names=("payments",))
        assert named.error_code is TOPIC
        found = alice.ask(68, 1, **joining, member_id="b", subscribed_topic_regex=".*")
        topics = {each.topic_id for each in found.assignment.topic_partitions}
        assert topics == {cluster.topics["orders"].topic_id}


def question(schema: Any, cluster: Any, is_everything: bool) -> dict[str, Any]:
    """A request for a topic, a group and a transactional id, or for all there are."""
    asked: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        nested, kind = nested_entity(field), str(field.type)
        is_list, is_optional = kind.startswith("tuple") or "tuple[" in kind, "None" in kind
        if is_optional and (is_everything or not is_list) and field.name not in NAMES:
            asked[field.name] = None
        elif is_list and is_everything:
            asked[field.name] = ()
        elif nested is not None:
            each = question(nested, cluster, is_everything)
            asked[field.name] = [each] if is_list else each
        else:
            value = NAMES.get(field.name, plain_of(field.metadata.get("kafka_type", "")))
            if field.name == "topic_id":
                value = cluster.topics["orders"].topic_id
            asked[field.name] = [value] if is_list else value
    return asked


NAMES: Final[dict[str, Any]] = {
    **dict.fromkeys(("topic", "name", "topic_name", "topics"), "orders"),
    **dict.fromkeys(("group_id", "groups", "group_ids", "key", "coordinator_keys"), "g-classic"),
    **dict.fromkeys(("topic_id",), None),
    "transactional_ids": "txn-hang",
    "replica_id": -1,
    "endpoint_type": 1,
    "resource_type": 4,
    "resource_name": "1",
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
}


def plain_of(kind: str) -> Any:
    if kind.startswith("timedelta"):
        return dt.timedelta(0)
    return {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0}.get(kind, 0)


def plain_values(value: Any) -> Iterator[Any]:
    """All values in a message, however deep."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from plain_values(getattr(value, field.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from plain_values(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from plain_values(each)
    else:
        yield value


def test_topics_that_are_not_allowed_are_not_listed(plain: RunningServer) -> None:
    for user, seen in (("alice", {"orders"}), ("bob", {"orders"}), ("root", {"orders", "secrets"})):
        found = Connection.of(plain, user).ask(3, 12, topics=None)
        assert {each.name for each in found.topics} == seen


@pytest.mark.parametrize(
    ("acls", "seen"),
    [
        ((acl("User:alice", "READ", "TOPIC:*"),), {"orders", "secrets"}),
        ((acl("User:*", "READ", "TOPIC:sec", pattern="PREFIXED"),), {"secrets"}),
        ((acl("User:alice", "READ", "TOPIC:sec"),), set()),
        ((acl("User:Alice", "READ", "TOPIC:*"), acl("alice", "READ", "TOPIC:*")), set()),
        (
            (
                acl("User:alice", "ALL", "TOPIC:*"),
                acl("User:*", "ALL", "TOPIC:s", "DENY", pattern="PREFIXED"),
            ),
            {"orders"},
        ),
        (
            (acl("User:alice", "ALL", "TOPIC:*"), acl("User:alice", "ALL", "TOPIC:*", "DENY")),
            set(),
        ),
        ((acl("User:alice", "READ", "TOPIC:*", host="10.0.0.1"),), set()),
        ((acl("User:alice", "READ", "TOPIC:*", host="127.0.0.1"),), {"orders", "secrets"}),
        (
            (
                acl("User:alice", "READ", "TOPIC:*"),
                acl("User:*", "ALL", "TOPIC:orders", "DENY", host="127.0.0.1"),
            ),
            {"secrets"},
        ),
    ],
)
def test_acls_have_patterns_hosts_and_denials(
    acls: Sequence[AccessControlEntry], seen: set[str], two_topics: Path
) -> None:
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, acls, with_tls=False)
    with server:
        alice = Connection.of(server, "alice")
        assert {each.name for each in alice.ask(3, 12, topics=None).topics} == seen
        for topic in ("orders", "secrets"):
            may_read = fetched(alice, topic).error_code is ErrorCode.none
            assert may_read == (topic in seen)


def test_who_may_describe_may_not_read(two_topics: Path) -> None:
    acls = (acl("User:alice", "ALL", "TOPIC:*"), acl("User:alice", "READ", "TOPIC:orders", "DENY"))
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, acls, with_tls=False)
    with server:
        alice = Connection.of(server, "alice")
        assert {each.name for each in alice.ask(3, 12, topics=None).topics} == {"orders", "secrets"}
        assert fetched(alice, "orders").error_code is ErrorCode.topic_authorization_failed


def test_a_fetch_is_answered_for_the_topics_that_are_allowed(plain: RunningServer) -> None:
    alice = Connection.of(plain, "alice")
    alice.socket.sendall(fetch_of("orders", "secrets"))
    found = {each.topic: each.partitions[0] for each in alice.answer(1, 12).responses}
    assert found["orders"].records == b"".join(batches(10))
    assert found["secrets"].error_code is ErrorCode.topic_authorization_failed


@pytest.mark.parametrize("name", ["secrets", "absent"])
def test_a_topic_that_is_not_allowed_is_refused_whether_or_not_it_exists(
    name: str, plain: RunningServer
) -> None:
    asked = [{"name": name, "topic_id": None}]
    (found,) = Connection.of(plain, "alice").ask(3, 12, topics=asked).topics
    assert found.error_code is ErrorCode.topic_authorization_failed
    assert (found.name, found.topic_id, found.partitions) == (name, None, ())
    (found,) = (
        Connection.of(plain, "alice")
        .ask(75, 0, topics=[{"name": name}], response_partition_limit=10, cursor=None)
        .topics
    )
    assert found.error_code is ErrorCode.topic_authorization_failed


def test_descriptions_of_all_topics_leave_out_what_is_not_allowed(plain: RunningServer) -> None:
    found = Connection.of(plain, "bob").ask(
        75, 0, topics=[], response_partition_limit=1, cursor=None
    )
    assert [each.name for each in found.topics] == ["orders"]
    assert found.next_cursor is None


def fetched(connection: Connection, topic: str) -> Any:
    connection.socket.sendall(fetch_of(topic))
    return connection.answer(1, 12).responses[0].partitions[0]


def test_only_who_may_read_gets_records(plain: RunningServer) -> None:
    assert fetched(Connection.of(plain, "alice"), "orders").records == b"".join(batches(10))
    for user, topic in (("alice", "secrets"), ("bob", "orders"), ("bob", "absent")):
        found = fetched(Connection.of(plain, user), topic)
        assert found.error_code is ErrorCode.topic_authorization_failed
        assert not found.records


def test_groups_are_refused(plain: RunningServer) -> None:
    topics = [{"name": "orders", "partition_indexes": [0]}]
    asked = {"require_stable": False, "groups": [{"group_id": "other", "topics": topics}]}
    alice = Connection.of(plain, "alice")
    (group,) = alice.ask(9, 8, **asked).groups
    assert group.error_code is ErrorCode.group_authorization_failed
    found = Connection.of(plain, "alice").ask(
        10, 4, key_type=0, coordinator_keys=["tests", "other"]
    )
    assert [each.error_code for each in found.coordinators] == [
        ErrorCode.none,
        ErrorCode.group_authorization_failed,
    ]
    found = Connection.of(plain, "alice").ask(
        12, 4, group_id="other", generation_id=1, member_id="m"
    )
    assert found.error_code is ErrorCode.group_authorization_failed


def test_the_cluster_is_described_to_who_may_describe_it(plain: RunningServer) -> None:
    found = Connection.of(plain, "alice").ask(35, 4, topics=None)
    assert (found.error_code, found.results) == (ErrorCode.cluster_authorization_failed, ())
    assert Connection.of(plain, "root").ask(35, 4, topics=None).results


def test_every_api_that_is_answered_has_a_rule() -> None:
    assert set(OFFERED) <= RULES.keys()


def test_an_api_without_a_rule_is_not_answered(
    two_topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(RULES, 35)
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, ACLS, with_tls=False)
    with server:
        connection = Connection.of(server, "root")
        offered = connection.ask(18, 3, client_software_name="test", client_software_version="1")
        assert 35 not in {each.api_key for each in offered.api_keys}
        connection.socket.sendall(framed(35, 4, topics=None))
        assert connection.is_closed()
