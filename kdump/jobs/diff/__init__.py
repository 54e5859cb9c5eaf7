"""Compare the replicas of partitions: where they part, and what each choice of a leader loses."""
