"""Entry points for workflow runs."""
