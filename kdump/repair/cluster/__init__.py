"""Rules that make a plan for a cluster's metadata of what the disks of its hosts know."""
