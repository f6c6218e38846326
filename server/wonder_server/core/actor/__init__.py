"""The contract between the planners and the actor runtime."""
