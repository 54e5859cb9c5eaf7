"""Leader epochs, and where replicas that parted truncate."""
