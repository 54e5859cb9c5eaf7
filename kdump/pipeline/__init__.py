"""Jobs over many segments, in this process and its workers or on Spark; the Spark data source."""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Make ``spark.read.format("kafka-log")`` known to a ``pyspark.sql.SparkSession``.

    See :mod:`kdump.pipeline.kafka_log.data_source`, which is imported when this is called.
    """
    from kdump.pipeline.kafka_log import data_source

    data_source.register(spark)
