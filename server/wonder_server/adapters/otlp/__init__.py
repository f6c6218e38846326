"""Traces in the protocol of OpenTelemetry (OTLP)."""
