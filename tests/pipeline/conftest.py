"""A Spark session with the data source ``kafka-log``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdump.engine.spark_session import SparkSession
from kdump.pipeline.data_source import sql_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SqlSession


@pytest.fixture(scope="module")
def sql(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    """Return a session with the data source; Spark starts once for the module."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    spark = SparkSession("local[2]", {"spark.sql.warehouse.dir": str(warehouse)})
    try:
        yield sql_session(spark.context)
    finally:
        spark.close()
