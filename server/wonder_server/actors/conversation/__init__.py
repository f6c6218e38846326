"""Entry points for conversations."""
