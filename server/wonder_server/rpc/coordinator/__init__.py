"""The CoordinatorService."""
