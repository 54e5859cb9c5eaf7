"""The process that Spark's workers are forked from, with all imported that they need.

Spark runs it instead of ``pyspark.daemon``, whose workers would each import that for themselves.
"""

from __future__ import annotations

import kdump.jobs.table_rows.records_reader  # noqa: F401


def run() -> None:
    """Fork workers for as long as Spark runs."""
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    run()
