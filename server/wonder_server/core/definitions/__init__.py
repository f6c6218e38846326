"""Definitions: their values, documents, checks and pins."""
