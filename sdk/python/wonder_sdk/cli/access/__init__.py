"""Commands for callers: principals, keys, roles and the audit."""
