"""Bare git repositories: objects, references, merges and queries."""
