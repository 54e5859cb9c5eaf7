"""The only room that writes to log directories: lock, plan, apply, undo."""
