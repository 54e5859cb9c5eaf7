"""The copies of a cluster's metadata: questions, rebuilding, writing."""
