"""Who may do what, by the ACLs of the cluster's metadata."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from kdump.state.metadata.metadata_entities import AccessControlEntry

_WILDCARD: Final = "*"
_WILDCARD_PRINCIPAL: Final = "User:*"
_IMPLYING: Final = {
    "DESCRIBE": frozenset({"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}),
    "DESCRIBE_CONFIGS": frozenset({"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
}
"""What else allows an operation; nothing else denies it."""


class Authorizer:
    """Decides as ``StandardAuthorizerData`` does: denied over allowed, and denied without an ACL.

    Hosts may be ranges, such as 10.0.0.0/8, as since Kafka 4.4.
    """

    def __init__(self, acls: Iterable[AccessControlEntry], super_users: Collection[str]) -> None:
        """Sort ACLs by their resources.

        Args:
            acls: of the cluster.
            super_users: principals that may do everything, such as ``User:admin``.
        """
        self._super_users = frozenset(super_users)
        self._by_pattern: dict[tuple[str, str, str], list[AccessControlEntry]] = defaultdict(list)
        for each in acls:
            key = each.resource_type, each.pattern_type, each.resource_name
            self._by_pattern[key].append(each)

    def allows(
        self, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        """Whether a principal may do something to a resource.

        Args:
            principal: such as ``User:alice``.
            host: the address that it comes from, as ``java_address`` writes it.
            operation: Kafka's name, such as ``READ``; so is the type of the resource.
            resource_type: such as ``TOPIC``.
            name: of the resource.
        """
        if principal in self._super_users:
            return True
        keys = [(resource_type, "LITERAL", name), (resource_type, "LITERAL", _WILDCARD)]
        keys += [(resource_type, "PREFIXED", name[:end]) for end in range(len(name) + 1)]
        is_allowed = False
        for key in keys:
            for acl in self._by_pattern.get(key, ()):
                if acl.principal not in (principal, _WILDCARD_PRINCIPAL):
                    continue
                if not _applies(acl, operation) or not _has_host(acl.host, host):
                    continue
                if acl.permission_type != "ALLOW":
                    return False
                is_allowed = True
        return is_allowed


def java_address(address: str) -> str:
    """An address as ``InetAddress.getHostAddress`` writes it, which ACLs are compared with."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    plain, _, scope = parsed.exploded.partition("%")
    groups = ":".join(f"{int(each, 16):x}" for each in plain.split(":"))
    return f"{groups}%{scope}" if scope else groups


def _applies(acl: AccessControlEntry, operation: str) -> bool:
    if acl.operation in ("ALL", operation):
        return True
    return acl.permission_type == "ALLOW" and acl.operation in _IMPLYING.get(operation, ())


def _has_host(pattern: str, host: str) -> bool:
    """Whether an ACL is for a host. Follows ``StandardAuthorizerData``, ``CidrUtils.isInRange``."""
    if pattern in (_WILDCARD, host):
        return True
    address, slash, length = pattern.partition("/")
    if not slash or not length.isascii() or not length.isdigit():
        return False
    if "." in address and ":" not in address:
        # Java takes an octet with zeros in front for a decimal number.
        address = ".".join(each.lstrip("0") or "0" for each in address.split("."))
    try:
        network = ipaddress.ip_network(f"{address}/{length}", strict=False)
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False
