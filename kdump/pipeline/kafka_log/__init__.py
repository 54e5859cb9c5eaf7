"""The Spark data source ``kafka-log``: the records of log directories as a table."""
