"""The actor runtime: a loop that plans, commits, dispatches and recovers."""
