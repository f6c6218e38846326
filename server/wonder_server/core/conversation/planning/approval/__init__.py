"""Approval of tool calls by people, and the time for which their work waits for people (feature M9)."""
