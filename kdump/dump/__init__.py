"""What ``kdump dump-segment`` shows: each kind of file as the official tool's text, and as rows."""
