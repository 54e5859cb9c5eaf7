"""The rows of the tables, from the jobs of the commands."""
