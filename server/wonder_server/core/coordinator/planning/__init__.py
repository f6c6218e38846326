"""Decisions of the run planner, one module for each part of a run."""
