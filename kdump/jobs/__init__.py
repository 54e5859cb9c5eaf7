"""What each command asks of the engine, and how its results come together."""
