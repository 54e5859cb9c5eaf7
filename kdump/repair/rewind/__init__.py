"""A log as it becomes in another cluster."""
