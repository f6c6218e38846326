"""Validation of JSON: schemas, patterns and payload limits."""
