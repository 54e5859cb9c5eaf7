"""What a directory should become: files as they should be, and a virtual directory for rules."""
