"""Telemetry: what the server says about itself to the tools of its operator."""
