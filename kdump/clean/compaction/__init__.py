"""Log compaction, as Kafka's cleaner does it."""
