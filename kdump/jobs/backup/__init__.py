"""Back up log directories to a repository, list and check what it has, and restore from it."""
