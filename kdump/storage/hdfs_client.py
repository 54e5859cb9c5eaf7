"""HDFS without an installation of Hadoop, by the package ``hdfs-native``.

It speaks the protocol of name nodes and data nodes, and reads ``HADOOP_CONF_DIR``. Only what
:class:`~kdump.storage.store_connection.StoreConnection` asks of a file system of pyarrow is here.
"""

from __future__ import annotations

import errno
import io
import os
import urllib.parse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSelector

Value = TypeVar("Value")

_LONGEST_PAUSE_MS: Final = 4000

_NO_CLIENT: Final = (
    "hdfs:// needs the Python package hdfs-native: pip install 'kafka-kdump[hdfs]'; or Hadoop's own"
    " client, with JAVA_HOME, HADOOP_HOME and CLASSPATH"
)


class HdfsFileSystem:
    """The files of a cluster, as ``pyarrow.fs.FileSystem`` has them."""

    def __init__(self, uri: str, attempts: int, read_seconds: float) -> None:
        """Prepare a client; nothing is asked for yet.

        Args:
            attempts: to reach a name node, with growing pauses in between.
            read_seconds: a data node that is silent for so long is given up.

        Raises:
            OSError: the package is not installed, or the URI cannot be used.
        """
        parts = urllib.parse.urlsplit(uri)
        if "@" in parts.netloc:
            raise OSError("name the user with HADOOP_USER_NAME, not in the URI")
        try:
            from hdfs_native import Client
        except ImportError:
            raise OSError(_NO_CLIENT) from None
        limits = {
            "dfs.client.failover.max.attempts": str(attempts),
            "dfs.client.failover.sleep.max.millis": str(_LONGEST_PAUSE_MS),
            "dfs.client.socket-timeout": str(round(read_seconds * 1000)),
        }
        root = f"{parts.scheme}://{parts.netloc}"
        self._client: Any = _asked(lambda: Client(root, limits))

    def get_file_info(self, asked: FileSelector | str) -> Any:
        """What is at a path, or the entries of a directory."""
        from pyarrow.fs import FileInfo, FileType

        if isinstance(asked, str):
            try:
                return _info(_asked(lambda: self._client.get_file_info(asked)))
            except FileNotFoundError:
                return FileInfo(asked, FileType.NotFound)
        root = asked.base_dir
        if not _asked(lambda: self._client.get_file_info(root)).isdir:
            # Where there are no directories but in names, nothing is below a file.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), root)
        found = _asked(lambda: list(self._client.list_status(root, asked.recursive)))
        return [_info(each) for each in found]

    def open_input_file(self, path: str) -> HdfsFile:
        """Open a file for reading."""
        status = _asked(lambda: self._client.get_file_info(path))
        return HdfsFile(_asked(lambda: self._client.read(path)), status)


class HdfsFile:
    """A file that is open for reading, as ``pyarrow.NativeFile`` is."""

    def __init__(self, reader: Any, status: Any) -> None:
        self._reader = reader
        self._status = status

    def size(self) -> int:
        """Its size when it was opened."""
        return int(self._reader.inner.file_length())

    def metadata(self) -> dict[str, str]:
        """When it was modified."""
        modified = datetime.fromtimestamp(self._status.modification_time // 1000, UTC)
        return {"last-modified": modified.isoformat()}

    def get_stream(self, position: int, count: int) -> io.BytesIO:
        """A range, which is read at once; fewer bytes only where the file ends."""
        wanted = max(0, min(count, self.size() - position))
        if not wanted:
            return io.BytesIO()
        return io.BytesIO(_asked(lambda: self._reader.read_range(position, wanted)))


def _info(status: Any) -> FileInfo:
    from pyarrow.fs import FileInfo, FileType

    if status.isdir:
        return FileInfo(status.path, FileType.Directory)
    modified_ns = status.modification_time * 1_000_000
    return FileInfo(status.path, FileType.File, mtime_ns=modified_ns, size=status.length)


def _asked(ask: Callable[[], Value]) -> Value:
    """Ask the cluster something.

    Raises:
        OSError: the call failed.
    """
    try:
        return ask()
    except RuntimeError as failure:
        raise OSError(str(failure)) from None
