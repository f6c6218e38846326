"""Decisions of the conversation planner, one module for each part of a turn."""
