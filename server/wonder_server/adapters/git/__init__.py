"""Repositories of git, reached by its plumbing alone."""
