"""Tenants, principals, keys and role bindings: stored values, and the permissions that follow from them."""
