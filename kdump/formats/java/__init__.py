"""Text as Java reads and writes it: UTF-8, numbers, lines, properties and JSON."""
