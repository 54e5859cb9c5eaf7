"""The page that ``kdump report`` writes: its data, its template, script and style."""
