"""Answers from the cluster's metadata: ACLs, quotas, users, tokens, moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState
from kdump.log.directory import LogDirectory
from kdump.serve.answering import Answering, Caller, Serving
from kdump.serve.messages import Answer, Request
from kdump.state.metadata.metadata_entities import AccessControlEntry, DelegationToken
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage

DESCRIBE_ACLS: Final = 29
DESCRIBE_LOG_DIRS: Final = 35
DESCRIBE_DELEGATION_TOKEN: Final = 41
LIST_PARTITION_REASSIGNMENTS: Final = 46
DESCRIBE_CLIENT_QUOTAS: Final = 48
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50

_UNKNOWN: Final = -1
_ANY: Final = 1
_MATCH, _PREFIXED = 2, 4
"""Numbers of ``PatternType``."""
_WILDCARD: Final = "*"
_EXACT, _DEFAULT = 0, 1
"""How a component of a filter of quotas matches; 2 is any name."""


class LogDirAnswers:
    """Answers ``DescribeLogDirs``, which needs no metadata."""

    def __init__(self, serving: Serving) -> None:
        self._cluster = serving.cluster

    def handlers(self) -> Mapping[int, Answering]:
        return {DESCRIBE_LOG_DIRS: self.describe_log_dirs}

    async def describe_log_dirs(self, request: Request, _caller: Caller) -> Answer:
        """All directories with what is in them; how far a replica lags nobody measures any more."""
        wanted = None
        if request.body.topics is not None:
            wanted = {
                (topic.topic, number)
                for topic in request.body.topics
                for number in topic.partitions
            }
        return {
            "results": [
                {"log_dir": str(each.path), "topics": list(_topics_in(each, wanted))}
                for each in self._cluster.directories
            ]
        }


def _topics_in(directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Iterator[Answer]:
    found: dict[str, list[Answer]] = {}
    for each in directory.partitions:
        key = each.topic_partition
        if key is None or each.state not in (PartitionState.LIVE, PartitionState.FUTURE):
            continue
        if key.topic != CLUSTER_METADATA_TOPIC and (wanted is None or key in wanted):
            found.setdefault(key.topic, []).append(
                {
                    "partition_index": key.partition,
                    "partition_size": each.log_bytes,
                    "offset_lag": _UNKNOWN,
                    "is_future_key": each.state is PartitionState.FUTURE,
                }
            )
    return ({"name": name, "partitions": rows} for name, rows in found.items())


class MetadataAnswers:
    """Answers what only the cluster's metadata knows."""

    def __init__(self, serving: Serving, image: MetadataImage) -> None:
        self._cluster = serving.cluster
        self._image = image

    def handlers(self) -> Mapping[int, Answering]:
        return {
            DESCRIBE_ACLS: self.describe_acls,
            DESCRIBE_DELEGATION_TOKEN: self.describe_delegation_token,
            LIST_PARTITION_REASSIGNMENTS: self.list_partition_reassignments,
            DESCRIBE_CLIENT_QUOTAS: self.describe_client_quotas,
            DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe_user_scram_credentials,
        }

    # ---- Who may do what ----

    async def describe_acls(self, request: Request, _caller: Caller) -> Answer:
        found: dict[tuple[int, str, int], list[Answer]] = {}
        for acl in self._image.of(EntityKind.ACL).values():
            codes = acl.record()
            if _matches(request.body, acl, codes):
                key = codes["resourceType"], acl.resource_name, codes["patternType"]
                found.setdefault(key, []).append(
                    {
                        "principal": acl.principal,
                        "host": acl.host,
                        "operation": codes["operation"],
                        "permission_type": codes["permissionType"],
                    }
                )
        return {
            "error_message": None,
            "resources": [
                {
                    "resource_type": resource_type,
                    "resource_name": name,
                    "pattern_type": pattern_type,
                    "acls": acls,
                }
                for (resource_type, name, pattern_type), acls in found.items()
            ],
        }

    async def describe_client_quotas(self, request: Request, _caller: Caller) -> Answer:
        """Follows ``ClientQuotasImage.describe``."""
        components = {each.entity_type: each for each in request.body.components}
        if len(components) < len(request.body.components):
            what = "an entity type is in the filter twice"
            return {
                "error_code": ErrorCode.invalid_request,
                "error_message": what,
                "entries": None,
            }
        return {
            "error_message": None,
            "entries": [
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                    "values": [{"key": key, "value": value} for key, value in values.items()],
                }
                for entity, values in self._image.of(EntityKind.QUOTA).items()
                if _is_entity(dict(entity), components, is_strict=bool(request.body.strict))
            ],
        }

    async def describe_user_scram_credentials(self, request: Request, _caller: Caller) -> Answer:
        """Mechanisms and iterations; salts and keys are never told. Follows ``ScramImage``."""
        infos: dict[str, list[Answer]] = {}
        for each in self._image.of(EntityKind.SCRAM).values():
            mechanism = each.record()["mechanism"]
            infos.setdefault(each.user, []).append(
                {"mechanism": mechanism, "iterations": each.iterations}
            )
        asked = Counter(each.name for each in request.body.users or ())
        return {
            "error_message": None,
            "results": [
                {"user": user, **_credentials(user, infos.get(user), count)}
                for user, count in (asked or dict.fromkeys(sorted(infos), 1)).items()
            ],
        }

    async def describe_delegation_token(self, request: Request, _caller: Caller) -> Answer:
        """The tokens, without the secrets, which the metadata does not have.

        Follows ``DelegationTokenManager.filterToken``.
        """
        owners = None
        if request.body.owners is not None:
            owners = {
                f"{each.principal_type}:{each.principal_name}" for each in request.body.owners
            }
        return {
            "tokens": [
                _token(each)
                for each in self._image.of(EntityKind.TOKEN).values()
                if owners is None or owners & {each.owner, each.requester, *each.renewers}
            ]
        }

    # ---- Partitions ----

    async def list_partition_reassignments(self, request: Request, _caller: Caller) -> Answer:
        asked = request.body.topics
        wanted = None
        if asked is not None:
            wanted = {(each.name, number) for each in asked for number in each.partition_indexes}
        topics = []
        for topic in self._cluster.topics.values():
            moving = [
                {
                    "partition_index": each.number,
                    "replicas": each.registration.replicas,
                    "adding_replicas": each.registration.adding_replicas,
                    "removing_replicas": each.registration.removing_replicas,
                }
                for each in topic.partitions.values()
                if each.registration is not None
                and (each.registration.adding_replicas or each.registration.removing_replicas)
                and (wanted is None or (topic.name, each.number) in wanted)
            ]
            topics += [{"name": topic.name, "partitions": moving}] if moving else []
        return {"error_message": None, "topics": topics}


def _credentials(user: str, infos: list[Answer] | None, count: int) -> Answer:
    error, why = ErrorCode.none, None
    if count > 1:
        error, why = ErrorCode.duplicate_resource, f"user {user} was asked for {count} times"
    elif infos is None:
        error, why = ErrorCode.resource_not_found, f"user {user} has no credential"
    is_found = error is ErrorCode.none
    return {
        "error_code": error,
        "error_message": why,
        "credential_infos": infos if is_found and infos is not None else (),
    }


def _token(token: DelegationToken) -> Answer:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    return {
        "principal_type": owner_type,
        "principal_name": owner,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester,
        "issue_timestamp": token.issue_timestamp_ms,
        "expiry_timestamp": token.expiration_timestamp_ms,
        "max_timestamp": token.max_timestamp_ms,
        "token_id": token.token_id,
        "hmac": b"",
        "renewers": [
            {"principal_type": kind, "principal_name": name}
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ],
    }


def _matches(asked: Any, acl: AccessControlEntry, codes: Mapping[str, Any]) -> bool:
    """Whether an ACL is what a filter asks for.

    Follows ``ResourcePatternFilter`` and ``AccessControlEntryFilter``.
    """
    return (
        asked.resource_type_filter in (_ANY, codes["resourceType"])
        and _matches_name(asked, acl.resource_name, codes["patternType"])
        and asked.principal_filter in (None, acl.principal)
        and asked.host_filter in (None, acl.host)
        and asked.operation in (_ANY, codes["operation"])
        and asked.permission_type in (_ANY, codes["permissionType"])
    )


def _matches_name(asked: Any, name: str, pattern_type: int) -> bool:
    wanted, wanted_type = asked.resource_name_filter, asked.pattern_type_filter
    if wanted_type not in (_ANY, _MATCH, pattern_type):
        return False
    if wanted is None:
        return True
    if wanted_type != _MATCH:
        return bool(wanted == name)
    if pattern_type == _PREFIXED:
        return bool(wanted.startswith(name))
    return name in (wanted, _WILDCARD)


def _is_entity(
    entity: Mapping[str, str | None], components: Mapping[str, Any], *, is_strict: bool
) -> bool:
    """Whether quotas are of an entity that a filter asks for."""
    if is_strict and entity.keys() - components.keys():
        return False
    for kind, asked in components.items():
        if kind not in entity:
            return False
        if asked.match_type == _EXACT and entity[kind] != asked.match:
            return False
        if asked.match_type == _DEFAULT and entity[kind] is not None:
            return False
    return True
