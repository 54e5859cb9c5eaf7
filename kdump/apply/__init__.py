"""The one layer that writes to a log directory: locks it, plans, applies, and takes back."""
