"""The ConversationService."""
