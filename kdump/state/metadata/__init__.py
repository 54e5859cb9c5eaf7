"""The cluster's metadata: its log, images, settings, and what brokers' disks know of it."""
