"""Parts that the commands share: connection flags, terminal output, JSON input."""
