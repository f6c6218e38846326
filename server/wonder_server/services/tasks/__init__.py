"""Tasks: execution of a task step by step."""
