"""URIs of object stores, as text: what of them is a path, and what must not be shown."""

from __future__ import annotations

import urllib.parse
from typing import Final

from msgspec import Struct

from kdump.errors import UsageProblem
from kdump.storage.place_names import TypedName
from kdump.storage.rooted_storage import ROOT, normal_path
from kdump.storage.store_limits import LOWEST_RATE_OPTION, TIMEOUT_OPTION

_USER_IS_SECRET: Final = frozenset({"s3", "gs", "gcs"})
"""Schemes whose user is the credential; that of others may be a container or a user."""
_AZURE: Final = frozenset({"abfs", "abfss"})
_ANONYMOUS: Final = "anonymous"
"""For Google's store this user stands for no credentials."""
_VARIABLES: Final = {"s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
_SHOWN_OPTIONS: Final = frozenset(
    {
        "allow_bucket_creation",
        "allow_bucket_deletion",
        "background_writes",
        "blob_storage_authority",
        "buffer_size",
        "client_id",
        "credential_kind",
        "default_block_size",
        "dfs_storage_authority",
        "enable_tls",
        "endpoint_override",
        "kerb_ticket",
        LOWEST_RATE_OPTION,
        "project_id",
        "region",
        "replication",
        "retry_limit_seconds",
        "scheme",
        "smart_defaults",
        "tenant_id",
        TIMEOUT_OPTION,
        "tls_ca_dir_path",
        "tls_ca_file_path",
        "tls_verify_certificates",
    }
)
"""Those that kdump and Arrow know and that are no credentials; any other may be one."""
_SHOWN_IN_FRONT: Final = "dfs."
"""The settings of Hadoop's client for HDFS, which has its secrets elsewhere."""


class StoreUri(Struct, frozen=True):
    """A URI of an object store; its options follow the last question mark.

    Attributes:
        scheme: such as ``s3``.
        user: what is before the host, with a secret if it has one.
        host: a bucket, or a server.
        path: normal, from the root on.
        options: after the question mark.
    """

    scheme: str
    user: str
    host: str
    path: str
    options: str

    @classmethod
    def of(cls, text: str) -> StoreUri:
        """Take a URI apart.

        Raises:
            UsageProblem: it has a secret that is not encoded, or a key and no account.
        """
        named, _, options = text.rpartition("?") if "?" in text else (text, "", "")
        scheme, _, rest = named.partition("://")
        netloc, _, path = rest.partition("/")
        user, _, host = netloc.rpartition("@")
        if ":" in host and (scheme in _USER_IS_SECRET or not _ends_with_port(host)):
            # This is the first half of a secret, and would be shown.
            raise UsageProblem(
                f"{scheme}://***: not a URI: in a secret, write / as %2F and ? as %3F"
            )
        if scheme in _AZURE and user.startswith(":") and "." not in host and ":" not in host:
            raise UsageProblem(
                f"{scheme}://***@{host}: names no account: write {scheme}://ACCOUNT:KEY@CONTAINER/PATH"
                f" or {scheme}://:KEY@ACCOUNT.dfs.core.windows.net/CONTAINER/PATH"
            )
        return cls(scheme, user, host, normal_path(path), options)

    @property
    def root(self) -> str:
        """The URI of the root, with credentials and options."""
        user = f"{self.user}@" if self.user else ""
        options = f"?{self.options}" if self.options else ""
        return f"{self.scheme}://{user}{self.host}/{options}"

    @property
    def name(self) -> str:
        """The root in messages: without credentials and options."""
        user = "" if self.scheme in _USER_IS_SECRET else self.user.partition(":")[0]
        return f"{self.scheme}://{user}{'@' if user else ''}{self.host}"

    def typed(self) -> TypedName:
        """How a command names it: with the options, but not with a credential."""
        options = [each for each in self.options.split("&") if each]
        shown = [each for each in options if _is_shown(each)]
        name = self.name
        if self.user == _ANONYMOUS:
            name = f"{self.scheme}://{self.user}@{self.host}"
        text = with_options(name if self.path == ROOT else f"{name}{self.path}", "&".join(shown))
        if not self.secrets():
            return TypedName(text)
        return TypedName(text, _VARIABLES.get(self.scheme, "the store's credentials"))

    def secrets(self) -> tuple[str, ...]:
        """What must not be in a message, as given and decoded."""
        user, _, secret = self.user.partition(":")
        found = {secret}
        if self.scheme in _USER_IS_SECRET and self.user != _ANONYMOUS:
            found |= {user, self.user}
        found |= {each.partition("=")[2] for each in self.options.split("&") if not _is_shown(each)}
        found |= {urllib.parse.unquote(each) for each in found}
        # The longest first: one may contain another.
        return tuple(sorted(filter(None, found), key=len, reverse=True))


def with_options(name: str, options: str) -> str:
    """The URI to type for one that has no options yet: they follow its last question mark."""
    return f"{name}?{options}" if options or "?" in name else name


def _ends_with_port(host: str) -> bool:
    return host.endswith("]") or host.rpartition(":")[2].isdigit()


def _is_shown(option: str) -> bool:
    name = option.partition("=")[0]
    return name in _SHOWN_OPTIONS or name.startswith(_SHOWN_IN_FRONT)
