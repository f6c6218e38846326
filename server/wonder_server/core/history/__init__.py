"""Words in the messages of conversations."""
