"""Starting other processes: what they may import, and pools of workers."""
