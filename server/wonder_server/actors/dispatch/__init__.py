"""Execution of commands: models, tasks, child runs, called agents and memory."""
