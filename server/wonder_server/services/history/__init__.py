"""Messages and tool results of conversations, for searches of clients and for tools of agents."""
