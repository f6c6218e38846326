"""Commands for resources: definitions, agents, projects, memories, artifacts and branches."""
