"""Client methods by resource, and the `Run` handle."""
