"""The store of conversations and runs: one SQLite file per shard."""
