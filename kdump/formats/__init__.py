"""Kafka's on-disk formats: bytes to values and back.

Nothing here opens a file, prints, or knows of a command. A decoder raises
:class:`~kdump.formats.errors.FormatError` for bytes that are not in its format, and nothing else.
"""
