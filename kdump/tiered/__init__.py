"""Tiered storage: where remote segments are, and log directories together with them."""
