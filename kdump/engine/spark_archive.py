"""Make the archive of Spark's classes, once, in the background.

A JVM that maps the archive (150 MB) starts Spark and runs a first statement in half the time.
Making it takes a JVM that runs a job and a few statements at half speed and then writes: in total
about 40 seconds of processor time. No run of kdump waits for that: the first one on Spark leaves a
process with the lowest priority, ``python -m kdump.engine.spark_archive``. If that fails there is
no archive, and nothing else changes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kdump.engine.class_archive import ClassArchive, find_archive, remove_unused
from kdump.engine.spark_installation import find_java, find_spark
from kdump.engine.spark_java import JVM_OPTIONS
from kdump.engine.spark_session import SparkSession
from kdump.errors import KdumpError
from kdump.processes.isolation import child_environment
from kdump.storage.private_folder import make_private_folder

_LEAST_PRIORITY: Final = 19
_ABANDONED_SECONDS: Final = 600
_PART_SUFFIX: Final = ".part"


def make_in_background() -> None:
    """Start to make the archive if there is none. Never fails, never waits.

    Archives of other installations that nobody uses are removed.
    """
    with contextlib.suppress(KdumpError, OSError):
        archive = _archive()
        if archive is not None:
            remove_unused(archive.path.parent, time.time())
        if archive is not None and _is_missing(archive):
            process = subprocess.Popen(  # noqa: S603 - no shell
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=os.environ | child_environment(),
                start_new_session=True,
            )
            # It outlives this process; Popen would warn about that.
            process.returncode = 0


def make() -> None:
    """Make the archive, unless it exists or is being made.

    Raises:
        KdumpError: Spark does not start.
        OSError: the cache cannot be written.
    """
    archive = _archive()
    if archive is None or not _is_missing(archive):
        return
    part = archive.path.with_suffix(f".{os.getpid()}{_PART_SUFFIX}")
    part.touch(mode=0o600)
    session = SparkSession(None, {}, archive_to=part)
    try:
        # Loads the classes that jobs need, and those of SQL statements.
        session.context.parallelize([[0], [1]], 2).foreachPartition(_visit)
        _run_statements(session.context)
        session.finish()
        # A JVM that cannot write it ends as usual.
        if part.stat().st_size:
            archive.keep(part)
    finally:
        session.abort()
        part.unlink(missing_ok=True)


def _visit(partition: object) -> None:
    """Do nothing with a partition."""


def _run_statements(context: Any) -> None:
    """Run a few SQL statements over rows that a Python function gives as Arrow batches."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    sql = SparkSession(context)
    numbers = sql.range(0, 4, 1, 2)
    schema = StructType.fromDDL("id BIGINT")
    function = UserDefinedFunction(
        _unchanged, schema, "numbers", PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = function(numbers["id"])
    frame = DataFrame(numbers._jdf.mapInArrow(column._jc, False, None), sql)
    frame.createOrReplaceTempView("numbers")
    # Statements over few rows are not compiled.
    for factory in ("NO_CODEGEN", "FALLBACK"):
        sql.conf.set("spark.sql.codegen.wholeStage", str(factory == "FALLBACK").lower())
        sql.conf.set("spark.sql.codegen.factoryMode", factory)
        for statement in _STATEMENTS:
            sql.sql(statement).limit(9).toArrow()


_STATEMENTS: Final = (
    "SELECT *, if(id < 0, raise_error('id'), id) FROM numbers WHERE id > 0",
    """
    SELECT id % 2 AS k, count(*) AS n, max(CAST(id AS STRING)), max_by(id, id) FROM numbers
    WHERE id IN (1, 2) OR CAST(id AS STRING) LIKE 'x%' GROUP BY 1 ORDER BY n DESC
    """,
    """
    SELECT a.id, date_trunc('hour', timestamp_millis(a.id)) FROM numbers AS a
    JOIN numbers AS b USING (id) WHERE a.id BETWEEN 1 AND 2 ORDER BY a.id
    """,
)


def _unchanged(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _archive() -> ClassArchive | None:
    return find_archive(find_java(os.environ), find_spark(), JVM_OPTIONS, os.environ)


def _is_missing(archive: ClassArchive) -> bool:
    """Whether there is no usable archive, and no other process is making one.

    Raises:
        OSError: its directory cannot be created.
    """
    if archive.is_usable() or not make_private_folder(archive.path.parent):
        return False
    oldest = time.time() - _ABANDONED_SECONDS
    parts = archive.path.parent.glob(f"{archive.path.stem}.*{_PART_SUFFIX}")
    return not any(part.stat().st_mtime > oldest for part in parts)


if __name__ == "__main__":
    os.nice(_LEAST_PRIORITY)
    with contextlib.suppress(KdumpError, OSError):
        make()
