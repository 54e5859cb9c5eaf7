"""Connections to object stores and HDFS, by ``pyarrow.fs``.

Each process has its own, made when it is first needed: connections do not survive a fork.
"""

from __future__ import annotations

import errno
import os
import re
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Value = TypeVar("Value")

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 30.0
"""A response that stalls for so long is asked for again."""
ATTEMPTS: Final = 5
"""For connections that fail, and answers such as 500 and 503; with growing pauses in between."""
_LONGEST_MESSAGE: Final = 400
_REQUEST_ID: Final = re.compile(r" ?\(Request ID: [^)]*\)")


class StoreConnection:
    """A file system of pyarrow, and the path of the store's root in it.

    Attributes:
        requests: how many requests this process made; repetitions after failures do not count.
    """

    def __init__(self, root_uri: str, name: str) -> None:
        """Prepare a connection.

        Args:
            root_uri: of the root, with credentials and options if it has any.
            name: the root in messages.

        Raises:
            OSError: the URI cannot be used.
        """
        from pyarrow.fs import FileSystem, S3FileSystem

        self._secrets = _secrets_of(root_uri)
        self.requests = 0

        def connect() -> tuple[FileSystem, str]:
            found, root = FileSystem.from_uri(root_uri)
            if isinstance(found, S3FileSystem):
                found = _patient(found)
            return found, root

        self.file_system, self._root = self.asked(connect, name, 0)

    def path(self, path: str) -> str:
        """The path in the file system for one that begins with ``/``."""
        if not self._root:
            return path.lstrip("/")
        return self._root.rstrip("/") + path if path != "/" else self._root

    def asked(self, ask: Callable[[], Value], name: str, requests: int = 1) -> Value:
        """Ask the store something.

        Args:
            ask: the call.
            name: what is asked for, in messages.
            requests: how many requests the call makes.

        Raises:
            OSError: the call failed; has the store's answer, and no credentials.
        """
        self.requests += requests
        try:
            return ask()
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
        except (OSError, ValueError, NotImplementedError) as failure:
            raise OSError(errno.EIO, self._answer(failure), name) from None

    def _answer(self, failure: Exception) -> str:
        """What the store said, on one line."""
        text = str(failure).strip() or type(failure).__name__
        if "libjvm" in text or "libhdfs" in text:
            return "hdfs:// needs Hadoop's client: set JAVA_HOME, HADOOP_HOME and CLASSPATH"
        text = _REQUEST_ID.sub("", text.split("\n", 1)[0])
        for each in self._secrets:
            text = text.replace(each, "***")
        return text[:_LONGEST_MESSAGE]


def _patient(found: Any) -> FileSystem:
    """The same file system of S3, with limits: pyarrow sets none for what it makes of a URI."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    (options,) = found.__reduce__()[1]
    limits = {
        "connect_timeout": CONNECT_SECONDS,
        "request_timeout": READ_SECONDS,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    }
    return S3FileSystem(**(options | limits))


def _secrets_of(uri: str) -> tuple[str, ...]:
    """What must not be in a message: the credentials in a URI, as given and decoded."""
    user = urllib.parse.urlsplit(uri).netloc.rpartition("@")[0]
    secret = user.partition(":")[2]
    found = {user if secret else "", secret}
    found |= {urllib.parse.unquote(each) for each in found}
    # The longest first: one may contain another.
    return tuple(sorted(filter(None, found), key=len, reverse=True))
