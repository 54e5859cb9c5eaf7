"""What a partition becomes when a broker loads it, or kdump salvages it."""
