"""Definition files and their YAML documents."""
