"""What ``kdump metadata collect`` asks of the engine: what the disks of a host know."""
