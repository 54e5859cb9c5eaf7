"""What groups committed, and the logs that they consume."""
