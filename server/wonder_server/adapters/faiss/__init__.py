"""Vector indexes with FAISS."""
