"""Embedders: the built-in one, those in helper processes, and batching."""
