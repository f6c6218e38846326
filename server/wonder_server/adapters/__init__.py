"""Implementations of the ports: stores, models, sandbox, git, network and in-memory fakes."""
