"""Bytes, in any form in which formats read them."""

Buffer = bytes | bytearray | memoryview
