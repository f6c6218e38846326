"""Values of a conversation: state, inputs, decisions and rows."""
