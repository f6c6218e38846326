"""The contract of action kinds: calls, services, shared JSON forms."""
