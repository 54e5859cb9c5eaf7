"""What all commands share that change a directory."""
