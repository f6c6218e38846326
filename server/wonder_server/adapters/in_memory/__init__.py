"""Adapters that keep everything in the process and need nothing installed: for tests and trials."""
