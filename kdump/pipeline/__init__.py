"""The Spark data source ``kafka-log``, for programs that import it."""

from __future__ import annotations

from typing import Any


def register(spark: Any, *, push_filters: bool = False) -> None:
    """Register ``spark.read.format("kafka-log")`` with a ``pyspark.sql.SparkSession``.

    With ``push_filters``, filters save reading, but each query needs its own ``load``; see
    :func:`kdump.pipeline.data_source.register`.
    """
    from kdump.pipeline import data_source

    data_source.register(spark, push_filters=push_filters)
