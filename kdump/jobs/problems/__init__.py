"""What could not be read, or is damaged."""
