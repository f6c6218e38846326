"""Administration of principals, keys and role bindings, and their directory in memory."""
