"""What a directory should become: target files, and the virtual directory on which rules work."""
