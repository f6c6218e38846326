"""The vectors port over FAISS indexes, one per agent."""
