"""Every form of output."""
