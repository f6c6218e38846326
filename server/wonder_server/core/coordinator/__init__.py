"""The planner of workflow runs."""
