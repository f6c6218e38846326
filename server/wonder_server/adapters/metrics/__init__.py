"""Metrics: the format of Prometheus, and the listener that serves it."""
