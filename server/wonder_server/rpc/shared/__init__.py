"""Codecs and request fields that several services use."""
