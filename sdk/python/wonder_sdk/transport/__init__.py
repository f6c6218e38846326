"""Channels, encoding of requests, reconnects and the event loop thread."""
