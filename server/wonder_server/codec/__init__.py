"""Stored form of values, for every store: interning, stored names, packing and seals."""
