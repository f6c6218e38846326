"""Repositories in folders of the host."""
