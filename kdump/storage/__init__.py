"""Where bytes lie: the one way in which files are opened for reading."""
