"""HTTP for what definitions ask: only where a project may reach."""
