"""Commands for workflows, runs and gates."""
