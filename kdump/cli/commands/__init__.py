"""The commands, one module each, named as it is typed."""
