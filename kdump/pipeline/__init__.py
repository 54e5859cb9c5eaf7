"""Jobs over many segments, in this process and its workers or on Spark."""
