"""Write to buckets of S3: whole objects, each complete or not there.

Reading is :mod:`~kdump.storage.object_store`, by pyarrow, which can neither write on a condition
nor delete many objects at once. Here it is the package ``botocore``, with the same credentials,
limits and attempts; what fails is worded, and given up, as there.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import IO, Any, Final, NamedTuple, TypeVar, cast

from kdump.errors import KdumpError
from kdump.storage.parallel_reads import each_read
from kdump.storage.request_counts import RequestCounts
from kdump.storage.store_connection import ATTEMPTS, StoreConnection
from kdump.storage.store_uri import StoreUri

Item = TypeVar("Item")
Value = TypeVar("Value")
Body = bytes | IO[bytes]

SCHEME: Final = "s3"
CONCURRENT_WRITES: Final = 8
"""One connection to a store has a fraction of the rate of several."""
_TOGETHER: Final = 1000
"""As many objects are deleted by one request."""
_DEFAULT_REGION: Final = "us-east-1"
_NO_CLIENT: Final = (
    "to write there needs the Python package botocore: pip install 'kafka-kdump[s3]'"
)


class ListedObject(NamedTuple):
    """An object as it is listed.

    Attributes:
        path: from the root of the bucket, beginning with ``/``.
        age_s: how long ago it was written, by the clock of the store.
    """

    path: str
    size_bytes: int
    age_s: float


class ObjectWriter:
    """One bucket; threads may use it at the same time."""

    def __init__(self, uri: StoreUri, connection: StoreConnection) -> None:
        """Prepare a client; nothing is asked for yet.

        Args:
            uri: of the bucket, with credentials and options if it has any.
            connection: to the same bucket, which is connected.

        Raises:
            KdumpError: botocore is not installed.
            OSError: the URI or the configuration cannot be used.
        """
        self._name = uri.name
        self._bucket = uri.host
        self._connection = connection
        self._client: Any = connection.asked(lambda: _client(uri, connection), uri.name)

    @property
    def timeout_s(self) -> float:
        """How long a small request may take, with all attempts."""
        return self._connection.limits.seconds_for(0)

    def put(self, path: str, body: Body) -> None:
        """Write an object, in place of one that is there; it is durable then.

        Args:
            path: from the root of the bucket.
            body: its bytes, or a file of them, from its beginning.

        Raises:
            OSError: the store does not take it.
        """
        self._put(path, body, {})

    def create(self, path: str, body: bytes) -> bool:
        """Write an object unless it is there; returns whether this call has created it.

        A store that does not know the condition writes it in any case.

        Raises:
            OSError: the store does not take it.
        """
        try:
            self._put(path, body, {"IfNoneMatch": "*"})
        except FileExistsError:
            # An attempt whose answer was lost may have created it.
            with contextlib.suppress(FileNotFoundError):  # who has created it deletes it
                return self.read(path) == body
            return False
        except ConditionUnknownError:
            self._put(path, body, {})
        return True

    def _put(self, path: str, body: Body, condition: dict[str, str]) -> None:
        size_bytes = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
        self._connection.counter.add(RequestCounts(writes=1))
        name = self._name_of(path)
        what = {"Bucket": self._bucket, "Key": _key(path), "Body": body, **condition}
        # All attempts send all of it.
        most_s = self._connection.limits.seconds_for(ATTEMPTS * size_bytes)
        self._ask(lambda: self._client.put_object(**what), name, most_s)

    def copy(self, path: str, new_path: str) -> None:
        """Copy an object in the store, with up to 5 GiB.

        Raises:
            OSError: it is missing, or the store does not do it.
        """
        self._connection.counter.add(RequestCounts(writes=1))
        source = {"Bucket": self._bucket, "Key": _key(path)}
        what = {"Bucket": self._bucket, "Key": _key(new_path), "CopySource": source}
        self._ask(lambda: self._client.copy_object(**what), self._name_of(path))

    def read(self, path: str) -> bytes:
        """All bytes of a small object.

        Raises:
            OSError: it is missing, or the store does not answer.
        """

        def read() -> bytes:
            answer = self._client.get_object(Bucket=self._bucket, Key=_key(path))
            return bytes(answer["Body"].read())

        data = self._ask(read, self._name_of(path))
        self._connection.counter.add(RequestCounts(reads=1, read_bytes=len(data)))
        return data

    def size_of(self, path: str) -> int | None:
        """The size of an object; None if it is missing.

        Raises:
            OSError: the store does not answer.
        """
        self._connection.counter.add(RequestCounts(lookups=1))
        what = {"Bucket": self._bucket, "Key": _key(path)}
        try:
            answer = self._ask(lambda: self._client.head_object(**what), self._name_of(path))
        except FileNotFoundError:
            return None
        return int(answer["ContentLength"])

    def listed(self, folder: str, *, is_deep: bool = True) -> Iterator[ListedObject]:
        """What is below a folder, a page at a time; nothing if the folder is missing.

        Args:
            folder: from the root of the bucket.
            is_deep: whether to list what is in folders; else these are listed by their names, with
                a slash at the end.

        Raises:
            OSError: the store does not answer.
        """
        prefix = f"{_key(folder).rstrip('/')}/".lstrip("/")
        what = {"Bucket": self._bucket, "Prefix": prefix}
        if not is_deep:
            what["Delimiter"] = "/"
        while True:
            self._connection.counter.add(RequestCounts(listings=1))
            page = self._ask(lambda: self._client.list_objects_v2(**what), self._name_of(folder))
            now = _time_of(page)
            for each in page.get("Contents", ()):
                if each["Key"] != prefix:
                    age_s = (now - each["LastModified"]).total_seconds()
                    yield ListedObject(f"/{each['Key']}", each["Size"], age_s)
            for each in page.get("CommonPrefixes", ()):
                yield ListedObject(f"/{each['Prefix']}", 0, 0)
            after = page.get("NextContinuationToken")
            if not page.get("IsTruncated") or not after:
                return
            if after == what.get("ContinuationToken"):
                raise OSError(errno.EIO, "the store repeats its pages", self._name_of(folder))
            what["ContinuationToken"] = after

    def delete(self, paths: Iterable[str], require: Callable[[], None] = lambda: None) -> None:
        """Delete objects; those that are missing count as deleted.

        Args:
            paths: from the root of the bucket.
            require: called before each request; what it raises ends it.

        Raises:
            OSError: the store does not delete one.
        """
        left = iter(paths)
        while together := list(itertools.islice(left, _TOGETHER)):
            require()
            self._connection.counter.add(RequestCounts(writes=1))
            self._delete(together)

    def _delete(self, paths: Sequence[str]) -> None:
        objects = [{"Key": _key(each)} for each in paths]
        what = {"Bucket": self._bucket, "Delete": {"Objects": objects, "Quiet": True}}
        answer = self._ask(lambda: self._client.delete_objects(**what), self._name_of(paths[0]))
        for each in answer.get("Errors", ()):
            said = f"{each.get('Code', '')}: {each.get('Message', 'not deleted')}"
            raise OSError(errno.EIO, said, self._name_of(f"/{each.get('Key', '')}"))

    def each_at_once(self, do: Callable[[Item], None], items: Sequence[Item]) -> None:
        """Do something for several items, some of them at the same time.

        Raises:
            OSError: as ``do``.
        """
        threads = min(CONCURRENT_WRITES, len(items))
        for _ in each_read(do, items, max(1, threads)):
            pass

    def _name_of(self, path: str) -> str:
        return f"{self._name}{path}"

    def _ask(self, ask: Callable[[], Value], name: str, most_s: float | None = None) -> Value:
        """Ask the store something.

        Raises:
            FileExistsError, PermissionError, ConditionUnknownError: so the store has answered.
            OSError: the call failed.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        refusals: list[OSError] = []

        def asked() -> Value | None:
            try:
                return ask()
            except ClientError as failure:
                refusal = _refusal(failure)
                if refusal is None:
                    raise OSError(str(failure)) from None
                if isinstance(refusal, FileNotFoundError):
                    raise refusal from None
                refusals.append(refusal)  # an answer: the store is there
                return None
            except BotoCoreError as failure:
                raise OSError(str(failure)) from None

        answer = self._connection.asked(asked, name, most_s)
        for each in refusals:
            raise type(each)(errno.EACCES, self._connection.answer(each), name)
        return cast("Value", answer)


class ConditionUnknownError(OSError):
    """The store does not know the condition of a request."""


_REFUSALS: Final[dict[frozenset[str], type[OSError]]] = {
    frozenset({"NoSuchKey", "NoSuchBucket", "404"}): FileNotFoundError,
    frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"}): FileExistsError,
    frozenset({"NotImplemented", "501"}): ConditionUnknownError,
    frozenset({"AccessDenied", "403"}): PermissionError,
}
"""By the codes of the store."""
_making_client: Final = threading.Lock()


def _client(uri: StoreUri, connection: StoreConnection) -> Any:
    try:
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise KdumpError(f"{uri.name}: {_NO_CLIENT}") from None
    options = dict(urllib.parse.parse_qsl(uri.options, keep_blank_values=True))
    endpoint = options.get("endpoint_override")
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    user, _, secret = uri.user.partition(":")
    attempt_s = connection.limits.seconds_of_attempt(ATTEMPTS)
    config = Config(
        connect_timeout=attempt_s,
        read_timeout=attempt_s,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        max_pool_connections=CONCURRENT_WRITES + 2,
        # Many stores know no others.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if endpoint else "auto"},
    )
    try:
        with _making_client:
            session = botocore.session.get_session()
            region = options.get("region") or connection.region or _DEFAULT_REGION
            client = session.create_client(
                SCHEME,
                region_name=region,
                endpoint_url=endpoint,
                aws_access_key_id=urllib.parse.unquote(user) or None,
                aws_secret_access_key=urllib.parse.unquote(secret) or None,
                verify=_verified(options),
                config=config,
            )
            if not user and (found := session.get_credentials()) is not None:
                connection.keep_secret(found.access_key, found.secret_key, found.token)
    except (BotoCoreError, ValueError) as failure:
        raise OSError(errno.EINVAL, str(failure)) from None
    return client


def _verified(options: dict[str, str]) -> bool | str | None:
    """By what the certificate of the store is verified; None for the default."""
    if options.get("tls_verify_certificates", "").lower() in ("false", "0"):
        return False
    return options.get("tls_ca_file_path") or None


def _refusal(failure: Any) -> OSError | None:
    """What an answer of the store says about an object; None if the call failed."""
    code = str(failure.response.get("Error", {}).get("Code", ""))
    for codes, kind in _REFUSALS.items():
        if code in codes:
            return kind(str(failure))
    return None


def _time_of(page: Any) -> datetime:
    """What time it is by the clock of the store."""
    said = page["ResponseMetadata"]["HTTPHeaders"].get("date")
    try:
        found = parsedate_to_datetime(said)
    except (TypeError, ValueError):
        return datetime.now(UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _key(path: str) -> str:
    return path.lstrip("/")
