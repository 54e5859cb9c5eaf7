"""The Spark data source ``kafka-log``, for programs that import it."""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Register ``spark.read.format("kafka-log")`` with a ``pyspark.sql.SparkSession``.

    See :func:`kdump.pipeline.data_source.register`.
    """
    from kdump.pipeline import data_source

    data_source.register(spark)
