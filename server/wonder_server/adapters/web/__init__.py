"""HTTP for definitions, limited to what a project may reach."""
