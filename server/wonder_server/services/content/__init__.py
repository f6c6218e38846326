"""Content: documents and code in git."""
