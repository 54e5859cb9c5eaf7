"""Verification, predictions, and the minimal repair of what was found."""
