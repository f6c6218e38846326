"""Encoding of stored values: interning of repeated content, and stored names."""
