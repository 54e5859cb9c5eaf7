"""Options and types of values that several commands have."""
