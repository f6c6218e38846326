"""Action kinds of artifacts."""
