"""Placement of shards on nodes."""
