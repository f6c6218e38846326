"""The ExecutorService."""
