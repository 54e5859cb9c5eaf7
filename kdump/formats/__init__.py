"""Kafka's on-disk formats: bytes to values and back.

Nothing here opens a file, prints, or knows of a command. What is given bytes that cannot be
what they claim to be raises :class:`~kdump.formats.errors.FormatError`, and nothing else.
"""
