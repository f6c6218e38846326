"""Embedders: the built-in one, which needs no model file."""
