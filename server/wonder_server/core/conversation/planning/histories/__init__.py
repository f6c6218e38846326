"""Histories of new conversations: copies of other conversations, and imports."""
