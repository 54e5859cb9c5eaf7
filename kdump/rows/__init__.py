"""What each row is that kdump shows: its fields, declared once."""
