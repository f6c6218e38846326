"""Memory: what agents remember, and its maintenance."""
