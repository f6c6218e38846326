"""Entry points for conversations that start with a history: imports and forks."""
