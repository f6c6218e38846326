"""Budgets and usage of agents."""
