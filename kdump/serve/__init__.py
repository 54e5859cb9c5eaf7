"""The Kafka protocol over dead disks: requests become questions, and answers responses."""
