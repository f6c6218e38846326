"""Action kinds of repositories."""
