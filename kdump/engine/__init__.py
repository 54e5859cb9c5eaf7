"""Running jobs, in this process or on Spark; knows nothing of Kafka's rules."""
