"""The command line: one module a command, one output interface."""
