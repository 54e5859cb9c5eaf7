"""What records add up to: producers, transactions, leader epochs, the cluster's metadata."""
