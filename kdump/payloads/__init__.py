"""Keys and values as text: by schemas, as UTF-8, or as hexadecimal digits."""
