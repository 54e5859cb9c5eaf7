"""What Kafka does to a log directory, identically."""
