"""Memories: values, validation, chunking and ranking."""
