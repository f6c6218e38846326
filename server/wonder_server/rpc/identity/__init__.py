"""The IdentityService."""
