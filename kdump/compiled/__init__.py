"""Compiled loops over the bytes of segments, where the installation could compile them."""
