"""From a partition as it is to what it should be: what a starting broker makes of it."""
