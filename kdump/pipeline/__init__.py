"""The Spark data source ``kafka-log``, for programs that import it."""

from __future__ import annotations

from typing import Any


def register(spark: Any, *, push_filters: bool = False) -> None:
    """Make ``spark.read.format("kafka-log")`` known to a ``pyspark.sql.SparkSession``.

    With ``push_filters`` filters spare reading, and each query needs a ``load`` of its own: see
    :func:`kdump.tables.kafka_log.data_source.register`, which is imported when this is called.
    """
    from kdump.tables.kafka_log import data_source

    data_source.register(spark, push_filters=push_filters)
