"""Permissions and roles: pure values, below everything else of the core."""
