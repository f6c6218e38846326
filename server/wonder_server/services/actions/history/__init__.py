"""Action kinds of the history of the conversation: messages, and large results of tools."""
