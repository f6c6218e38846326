"""Hooks of a turn that call models: memory extraction, and the models that it and summaries use."""
