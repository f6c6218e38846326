"""SQLite stores: one connection, one writer thread and group commit per file."""
