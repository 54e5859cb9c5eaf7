"""Output of ``kdump dump-segment``: each kind of file as the official tool's text, and as rows."""
