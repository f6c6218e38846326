"""Action kinds that reach models, servers, workers and the sandbox."""
