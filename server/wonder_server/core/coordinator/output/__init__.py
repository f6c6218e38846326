"""Effects of a decision: state changes, rows, events and commands."""
