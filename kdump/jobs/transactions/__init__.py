"""Open transactions, and what they pin."""
