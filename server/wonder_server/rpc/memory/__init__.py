"""The MemoryService."""
