"""Repositories, worktrees and origins with git."""
