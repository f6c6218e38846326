"""Ports: small Protocols (six methods at most) of stores, models, clocks and other adapters.

Ports import core only. The adapters of a port share one conformance suite.
"""
