"""The controllers' quorum: which disk has the most, and new voters."""
