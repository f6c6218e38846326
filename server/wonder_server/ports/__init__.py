"""Ports: small Protocols (six methods at most) behind which stores, models and clocks stand.

Ports import core only. Adapters implement them; each port's adapters share one conformance suite.
"""
