"""Adapters that keep things in plain files."""
