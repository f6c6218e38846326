"""The task interpreter, and the effects of action kinds."""
