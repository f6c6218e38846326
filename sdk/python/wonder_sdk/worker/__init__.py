"""Workers: processes that execute actions for a server."""
