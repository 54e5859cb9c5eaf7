"""Which records are erased, and a log without them."""
