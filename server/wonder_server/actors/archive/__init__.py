"""The archive of expired conversations."""
