"""State that records add up to: producers, transactions, leader epochs, cluster metadata."""
