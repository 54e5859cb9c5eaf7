"""The properties of topics, brokers, groups and client metrics, by version of Kafka."""
