"""The store of memories: memory.db with full text, metadata terms and vectors."""
