"""Loading a partition as a starting broker does."""
