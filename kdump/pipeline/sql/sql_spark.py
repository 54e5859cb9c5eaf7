"""The Spark that runs SQL statements, started before anything else that takes time.

This module imports little: a JVM takes a second to start, in which the rest can be imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final, Self

from msgspec import Struct

from kdump.engine.spark_installation import NoSparkError
from kdump.engine.spark_session import SparkSession
from kdump.errors import KdumpError

SPARK_PROPERTIES: Final = {
    "spark.sql.session.timeZone": "UTC",
    # The only tables are those of the directories.
    "spark.sql.runSQLOnFiles": "false",
    # Text such as "${env:HOME}" may be that of a record.
    "spark.sql.variable.substitute": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.driver.maxResultSize": "0",
}
"""Properties that the user may override."""

_TASK_PROPERTIES: Final = {
    # Otherwise statements would have other workers than the warm-up, which is no statement.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
_LOCAL_PROPERTIES: Final = {"spark.python.daemon.module": "kdump.pipeline.worker_daemon"}
"""Properties without a master: kdump may not be importable by the daemons of a cluster."""
_DEFAULT_MASTER: Final = "local[*, 1]"
"""A task that fails is not run again: most fail because of the statement."""


class SqlSpark(Struct, frozen=True):
    """A Spark that starts in the background.

    Attributes:
        chosen: names of the properties that the user set.
    """

    session: SparkSession
    chosen: frozenset[str]

    @classmethod
    def begin(cls, master: str | None = None, spark_conf: Mapping[str, str] | None = None) -> Self:
        """Begin to start Spark.

        Args:
            master: URL of Spark's master (default: all CPUs of this machine).
            spark_conf: Spark's own properties.

        Raises:
            KdumpError: Spark cannot be started.
        """
        own = SPARK_PROPERTIES | _TASK_PROPERTIES | (_LOCAL_PROPERTIES if master is None else {})
        chosen = dict(spark_conf or {})
        with only_on_spark():
            session = SparkSession(master or _DEFAULT_MASTER, own | chosen)
        return cls(session, frozenset(chosen))

    @contextlib.contextmanager
    def ended_by_failures(self) -> Iterator[Self]:
        """End Spark if what follows fails before a session takes it."""
        try:
            yield self
        except BaseException:
            self.session.abort()
            raise


@contextlib.contextmanager
def only_on_spark() -> Iterator[None]:
    """Advise no other engine if Spark cannot be started: SQL has none."""
    try:
        yield
    except NoSparkError as failure:
        raise KdumpError(
            f"{failure.reason}: SQL needs Spark, all other commands do not"
        ) from failure
