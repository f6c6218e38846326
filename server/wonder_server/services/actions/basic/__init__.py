"""Action kinds without external effects."""
