"""Action kinds of agent memory."""
